"""Reading a dataset through: what it holds, and every problem in it, as data."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from multiguard.data.image import decoding_threads
from multiguard.data.sample import Dataset, Problem, Progressed
from multiguard.errors import DataError


@dataclass(frozen=True)
class DataReport:
    """What reading every sample of a dataset found.

    Attributes:
        name: The dataset's name.
        images: How many samples it lists.
        readable: How many of them decoded whole.
        label_names: The name of each label, in index order.
        frequencies: For each label, how many readable samples carry it.
        labels_per_image: For each number of labels, how many readable samples have that many.
        shapes: For each (height, width), how many readable samples have it.
        problems: Every line of the listing and every sample that failed, in order.
    """

    name: str
    images: int
    readable: int
    label_names: tuple[str, ...]
    frequencies: tuple[int, ...]
    labels_per_image: dict[int, int]
    shapes: dict[tuple[int, int], int]
    problems: tuple[Problem, ...]

    @property
    def mean_labels(self) -> float:
        """The mean number of labels of a readable sample; 0 where there is none."""
        return sum(self.frequencies) / self.readable if self.readable else 0.0

    @property
    def empty_labels(self) -> tuple[str, ...]:
        """The labels that no readable sample carries."""
        return tuple(name for name, n in zip(self.label_names, self.frequencies, strict=True) if n == 0)


@dataclass(frozen=True)
class _Seen:
    shape: tuple[int, int]
    labels: tuple[int, ...]


def check_dataset(
    dataset: Dataset,
    workers: int | None = None,
    faults: Sequence[Problem] = (),
    progress: Progressed | None = None,
) -> DataReport:
    """Every sample read once and every problem found, not only the first; a bad image raises nothing.

    Args:
        dataset: What to read.
        workers: Decoding threads; None for one a core.
        faults: What opening the dataset found, as `open_dataset` collects it; reported first.
        progress: Called with the samples read so far and all of them.
    """
    with ThreadPoolExecutor(decoding_threads(workers)) as pool:
        results = []
        for result in pool.map(lambda index: _read(dataset, index), range(len(dataset))):
            results.append(result)
            if progress is not None:
                progress(len(results), len(dataset))
    seen = [result for result in results if isinstance(result, _Seen)]
    counts = Counter(label for one in seen for label in one.labels)
    return DataReport(
        name=dataset.name,
        images=len(dataset),
        readable=len(seen),
        label_names=tuple(dataset.label_names),
        frequencies=tuple(counts[index] for index in range(len(dataset.label_names))),
        labels_per_image=dict(sorted(Counter(len(one.labels) for one in seen).items())),
        shapes=dict(Counter(one.shape for one in seen).most_common()),
        problems=(*faults, *(result for result in results if isinstance(result, Problem))),
    )


def _read(dataset: Dataset, index: int) -> _Seen | Problem:
    try:
        sample = dataset[index]
    except DataError as error:
        return Problem(dataset.ids[index], str(error))
    _, height, width = sample.image.shape
    return _Seen((height, width), sample.labels)
