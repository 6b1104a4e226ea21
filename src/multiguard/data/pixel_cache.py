"""A complete dataset decoded once into one uint8 array, in memory or as a memory-mapped cache on disk."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multiguard.data.image import decoding_threads
from multiguard.data.sample import IndexedDataset, Progress
from multiguard.errors import DataError
from multiguard.io.files import require_folder, write_atomically
from multiguard.io.short_repr import short_repr


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


def load_pixels(
    dataset: IndexedDataset, *, workers: int | None = None, cache: Path | None = None, progress: Progress | None = None
) -> Pixels:
    """Every image of the dataset in order, decoded once; one that cannot be read raises `ImageError`.

    Args:
        dataset: Images of one size: open it with `size`.
        workers: Decoding threads; None for one per core.
        cache: A folder that keeps the decoded images, so that a second call only maps them. They are recognised by
            each file's path, length and modification time. Labels are never cached.
        progress: Called with the number of images decoded and their total.

    >>> from multiguard.data import open_dataset
    >>> pixels = load_pixels(open_dataset("digits", split="val", images=20))
    >>> pixels.images.shape, pixels.targets.shape
    ((20, 3, 32, 32), (20, 10))
    """
    threads = decoding_threads(workers)
    images = _decode(dataset, threads, progress) if cache is None else _decode_cached(dataset, threads, cache, progress)
    return Pixels(dataset.name, tuple(dataset.label_names), tuple(dataset.ids), images, target_matrix(dataset))


def target_matrix(dataset: IndexedDataset) -> NDArray[np.uint8]:
    """(n, c) uint8, 1 where the label is present; no image is decoded."""
    targets = np.zeros((len(dataset), len(dataset.label_names)), dtype=np.uint8)
    for row, labels in zip(targets, dataset.labels, strict=True):
        row[list(labels)] = 1
    return targets


def _decode(dataset: IndexedDataset, threads: int, progress: Progress | None) -> NDArray[np.uint8]:
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
    return images


def _decode_cached(dataset: IndexedDataset, threads: int, cache: Path, progress: Progress | None) -> NDArray[np.uint8]:
    """The decoded images, mapped from their file without running code; any other content of it raises `DataError`."""
    require_folder(cache)
    key, count = hashlib.sha256("\0".join(dataset.origins).encode()).hexdigest()[:32], len(dataset)
    path = cache / f"{key}.npy"
    if not path.is_file():
        write_atomically(path, partial(np.save, arr=_decode(dataset, threads, progress), allow_pickle=False))
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header of a damaged file as Python tokens
        raise DataError(f"{path}: not a cache of decoded images ({error}); delete it") from error
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or len(images) != count:
        raise DataError(f"{path}: not a cache of {count} decoded images; delete it")
    return images
