"""Samples, and the datasets that yield them: listed image files, random subsets of any dataset, and decoded ones."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from multiguard.data.image import decoding_threads, read_image
from multiguard.errors import DataError
from multiguard.io.files import real_path
from multiguard.io.names import is_unicode, short_repr

Progress = Callable[[int, int], None]  # called with the number done and the total


@dataclass(frozen=True, eq=False)
class Sample:
    """One image, its stable id and the indices of its labels.

    >>> Sample("cat.jpg", np.zeros((3, 8, 8), dtype=np.uint8), (0, 2)).labels
    (0, 2)
    """

    id: str  # does not depend on the order, the subset or the machine
    image: NDArray[np.uint8] | NDArray[np.float32]  # (3, height, width): uint8 (x / 255 is meant), or float in [0, 1]
    labels: tuple[int, ...]  # the indices of the labels that are present, sorted, without repetition; may be empty

    __repr__ = short_repr


class Dataset(Protocol):
    """A finite, ordered collection of samples. Anything with these five members is one; voting needs no more.

    >>> class Noise:
    ...     name, label_names, ids = "noise", ("cat", "dog"), ("a", "b")
    ...     def __len__(self): return 2
    ...     def __getitem__(self, index):
    ...         image = np.random.default_rng(index).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    ...         return Sample(self.ids[index], image, (index,))
    >>> dataset: Dataset = Noise()
    >>> dataset[1].id
    'b'
    """

    @property
    def name(self) -> str:
        """The dataset and its split; recorded in the votes."""

    @property
    def label_names(self) -> Sequence[str]:
        """The name of each label, by index."""

    @property
    def ids(self) -> Sequence[str]:
        """The id of each sample, known without decoding any image."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int, /) -> Sample:
        """The decoded sample; an unreadable image raises `ImageError`."""


class IndexedDataset(Dataset, Protocol):
    """A dataset that knows the labels and the origin of each image without decoding any; training needs one.

    >>> from multiguard.data import open_dataset
    >>> dataset: IndexedDataset = open_dataset("digits", split="test")
    >>> dataset.labels[0], dataset.origins[0]
    ((0, 2, 3, 9), 'digits test-0-00000 at 32')
    """

    @property
    def labels(self) -> Sequence[tuple[int, ...]]:
        """The labels of each sample."""

    @property
    def origins(self) -> Sequence[str]:
        """For each sample a text that changes whenever its decoded image may."""


@dataclass(frozen=True)
class ImageFile:
    """One listed image: its stable id, its path and its sorted label indices, without repetition."""

    id: str
    path: Path
    labels: tuple[int, ...]


class FileDataset:
    """Image files with different ids, decoded when read: an unreadable one raises `ImageError`, none is ever skipped.

    Each image is resized to `size`, unless that is None. After all links are resolved, it must be in the folder `home`.
    """

    def __init__(
        self, name: str, label_names: Sequence[str], files: Sequence[ImageFile], size: int | None, home: Path | None
    ) -> None:
        if not files:
            raise DataError(f"{name}: no image is listed; check the root folder and the split")
        if not label_names:
            raise DataError(f"{name}: no label is named; check the file of labels")
        for file in files:
            if not is_unicode(file.id):
                raise DataError(f"{name}: the name of image {file.id!r} is not UTF-8, and an id must be; rename it")
        image_id, count = Counter(file.id for file in files).most_common(1)[0]
        if count > 1:
            raise DataError(f"{name}: the image '{image_id}' is listed {count} times; list each image once")
        self.name, self.label_names, self.files = name, tuple(label_names), tuple(files)
        self.size, self.home = size, home
        self.ids, self.labels = [file.id for file in files], [file.labels for file in files]

    @property
    def origins(self) -> Sequence[str]:
        """The path of each image, the length and modification time of its file, and the size it is resized to."""
        return [f"{_file_state(file.path)} at {self.size}" for file in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> Sample:
        file = self.files[index]
        return Sample(file.id, read_image(file.path, self.size, home=self.home), file.labels)


def _file_state(path: Path) -> str:
    try:
        state = path.stat()
        return f"{real_path(path)} {state.st_size} {state.st_mtime_ns}"
    except (OSError, ValueError):  # a missing file has another state as soon as it exists
        return f"{path.absolute()} cannot be looked at"


class Subset:
    """The samples at these positions of a dataset, in its order and with their ids; the name has a note added."""

    def __init__(self, dataset: IndexedDataset, positions: Sequence[int], note: str) -> None:
        self.dataset, self.positions = dataset, tuple(sorted(positions))
        self.name, self.label_names = f"{dataset.name}, {note}", dataset.label_names
        self.ids: Sequence[str] = [*map(dataset.ids.__getitem__, self.positions)]

    @property
    def labels(self) -> Sequence[tuple[int, ...]]:
        """The labels of each sample."""
        return [*map(self.dataset.labels.__getitem__, self.positions)]

    @property
    def origins(self) -> Sequence[str]:
        """For each sample a text that changes whenever its decoded image may."""
        return [*map(self.dataset.origins.__getitem__, self.positions)]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int, /) -> Sample:
        return self.dataset[self.positions[index]]


def subset(dataset: IndexedDataset, images: int = 500, seed: int = 0) -> Subset:
    """Uniformly random images of the dataset, the same for the same seed and ids; more than it has raise `DataError`.

    >>> from multiguard.data import open_dataset
    >>> subset(open_dataset("digits", split="test"), images=120).name
    'digits test (seed 0), 120 random images (seed 0)'
    """
    if not 1 <= images <= len(dataset):
        raise DataError(f"{dataset.name}: {images} images requested; choose between 1 and {len(dataset)}")
    return Subset(dataset, _random_order(dataset, seed)[:images], f"{images} random images (seed {seed})")


def hold_out(dataset: IndexedDataset, fraction: float, seed: int = 0) -> tuple[Subset, Subset]:
    """The dataset in two parts without overlap, the second a random fraction; the same for the same seed.

    >>> from multiguard.data import open_dataset
    >>> kept, held_out = hold_out(open_dataset("digits", split="test"), 0.1)
    >>> len(kept), len(held_out), held_out.name
    (900, 100, 'digits test (seed 0), held-out fraction 0.1 (seed 0)')
    """
    count = round(fraction * len(dataset))
    if not 0 < count < len(dataset):
        raise DataError(f"{dataset.name}: holding out {fraction} of {len(dataset)} images leaves one part empty")
    order = _random_order(dataset, seed)
    note = f"held-out fraction {fraction:.3g} (seed {seed})"
    return Subset(dataset, order[count:], f"all but the {note}"), Subset(dataset, order[:count], note)


def _random_order(dataset: Dataset, seed: int) -> list[int]:
    if seed < 0:
        raise DataError(f"{dataset.name}: the seed is {seed}; it must be at least 0")
    return [int(position) for position in np.random.default_rng(seed).permutation(len(dataset))]


@dataclass(frozen=True, eq=False)
class Pixels:
    """A decoded dataset: one image, one id and one row of targets for each sample; anything else raises `DataError`.

    >>> Pixels("two", ("cat",), ("a", "b"), np.zeros((2, 3, 8, 8), np.uint8), np.array([[1], [0]], np.uint8)).ids
    ('a', 'b')
    """

    name: str
    label_names: tuple[str, ...]
    ids: tuple[str, ...]
    images: NDArray[np.uint8]  # (n, 3, height, width)
    targets: NDArray[np.uint8]  # (n, c), 1 where the label is present

    __repr__ = short_repr

    def __post_init__(self) -> None:
        expected = (len(self.images), len(self.label_names))
        if self.targets.shape != expected or len(self.ids) != len(self.images):
            given = f"targets {self.targets.shape} and {len(self.ids)} ids"
            raise DataError(f"{self.name}: {given}; expected {expected}, one row per image and one column per label")

    def __len__(self) -> int:
        return len(self.images)


def load_pixels(dataset: IndexedDataset, *, workers: int | None = None, progress: Progress | None = None) -> Pixels:
    """Every image of the dataset, all of one size, in order; one that cannot be read raises `ImageError`.

    `workers` threads decode, one per core by default. `progress` is called with the number of images done and in all.

    >>> from multiguard.data import open_dataset
    >>> pixels = load_pixels(open_dataset("digits", split="val", images=20))
    >>> pixels.images.shape, pixels.targets.shape
    ((20, 3, 32, 32), (20, 10))
    """
    threads = decoding_threads(workers)
    if len(dataset) == 0:
        raise DataError(f"{dataset.name}: no images to decode")
    images = np.empty((len(dataset), *dataset[0].image.shape), dtype=np.uint8)

    def fill(index: int) -> None:
        sample = dataset[index]
        if sample.image.shape != images.shape[1:] or sample.image.dtype != np.uint8:
            given = f"{sample.image.dtype} {sample.image.shape}"
            raise DataError(f"{sample.id}: {given} among uint8 {images.shape[1:]}; open the dataset with one size")
        images[index] = sample.image

    with ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(pool.map(fill, range(len(dataset))), start=1):
            if progress is not None:
                progress(done, len(dataset))
    return Pixels(dataset.name, tuple(dataset.label_names), tuple(dataset.ids), images, target_matrix(dataset))


def target_matrix(dataset: IndexedDataset) -> NDArray[np.uint8]:
    """(n, c) uint8, 1 where the label is present; no image is decoded."""
    targets = np.zeros((len(dataset), len(dataset.label_names)), dtype=np.uint8)
    for row, labels in zip(targets, dataset.labels, strict=True):
        row[list(labels)] = 1
    return targets


def fewer_images(requested: int, there: int) -> str:
    """A note that there are fewer images than were requested."""
    return f"{requested} images requested, and there are {there}: all of them are taken"


def image_hashes(prefix: str, images: IndexedDataset, root: Path | None, *, labelled: bool = True) -> dict[str, str]:
    """Hashes, by names with this prefix, that change with any image's name, file, size, or labels if they count.

    None is decoded, and the location of the folder `root` does not change them.
    """
    home = "" if root is None else str(real_path(root))
    return {
        f"{prefix}.name": images.name,
        f"{prefix}.labels": _hash(images.label_names),
        f"{prefix}.ids": _hash(images.ids),
        f"{prefix}.truth": _hash(str(labels) for labels in images.labels if labelled),
        f"{prefix}.files": _hash(origin.removeprefix(home) for origin in images.origins),
    }


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
