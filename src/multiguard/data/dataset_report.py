"""Reading a dataset from beginning to end: what it contains, and every image failure in it."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from multiguard.data.image import decoding_threads
from multiguard.data.sample import Dataset, Progress
from multiguard.errors import DataError, ImageError, ImageFailure
from multiguard.io.short_repr import short_repr


@dataclass(frozen=True)
class DataReport:
    """What reading every sample of a dataset found.

    >>> from multiguard.data import open_dataset
    >>> report = check_dataset(open_dataset("digits", split="val", images=50))
    >>> report.shapes, report.mean_labels, report.empty_labels
    ({(32, 32): 50}, 2.52, ())
    """

    name: str
    images: int  # the number of samples listed
    readable: int  # how many of them could be decoded
    label_names: tuple[str, ...]
    frequencies: tuple[int, ...]  # for each label, the number of readable samples that carry it
    labels_per_image: dict[int, int]  # for each number of labels, the number of readable samples with that many
    shapes: dict[tuple[int, int], int]  # for each (height, width), the number of readable samples
    failures: tuple[ImageFailure, ...]  # every row of the table and every sample that cannot be used, in order

    __repr__ = short_repr

    @property
    def mean_labels(self) -> float:
        """The mean number of labels per readable sample; 0 where there is none."""
        return sum(self.frequencies) / self.readable if self.readable else 0.0

    @property
    def empty_labels(self) -> tuple[str, ...]:
        """The labels that no readable sample carries."""
        return tuple(name for name, count in zip(self.label_names, self.frequencies, strict=True) if count == 0)


def check_dataset(
    dataset: Dataset,
    workers: int | None = None,
    failures: Sequence[ImageFailure] = (),
    progress: Progress | None = None,
) -> DataReport:
    """Every sample is read once and every image failure is reported, not only the first; a bad image raises nothing.

    Args:
        dataset: The dataset.
        workers: Decoding threads; None for one per core.
        failures: What `open_dataset` collected; reported first.
        progress: Called with the number of samples read and their total.

    >>> from multiguard.data import open_dataset
    >>> report = check_dataset(open_dataset("digits", split="val", images=50))
    >>> report.readable, report.labels_per_image, report.failures
    (50, {1: 14, 2: 8, 3: 16, 4: 12}, ())
    """
    results = []
    with ThreadPoolExecutor(decoding_threads(workers)) as pool:
        for result in pool.map(lambda index: _read(dataset, index), range(len(dataset))):
            results.append(result)
            if progress is not None:
                progress(len(results), len(dataset))
    readable = [result for result in results if not isinstance(result, ImageFailure)]
    counts = Counter(label for _, labels in readable for label in labels)
    return DataReport(
        name=dataset.name,
        images=len(dataset),
        readable=len(readable),
        label_names=tuple(dataset.label_names),
        frequencies=tuple(counts[index] for index in range(len(dataset.label_names))),
        labels_per_image=dict(sorted(Counter(len(labels) for _, labels in readable).items())),
        shapes=dict(Counter(shape for shape, _ in readable).most_common()),
        failures=(*failures, *(result for result in results if isinstance(result, ImageFailure))),
    )


def _read(dataset: Dataset, index: int) -> tuple[tuple[int, int], tuple[int, ...]] | ImageFailure:
    """The height, width and labels of a sample."""
    try:
        sample = dataset[index]
    except DataError as error:
        return ImageFailure(dataset.ids[index], error.reason if isinstance(error, ImageError) else str(error))
    return sample.image.shape[1:], sample.labels
