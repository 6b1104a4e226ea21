"""A whole dataset decoded once into one uint8 array, in memory or as a memory-mapped cache on disk."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multiguard.data.sample import Dataset
from multiguard.errors import DataError
from multiguard.files import write_atomically


@dataclass(frozen=True, eq=False)
class Pixels:
    """A decoded dataset.

    Attributes:
        name: The dataset's name.
        label_names: The name of each label, in index order.
        ids: The id of each picture.
        images: (n, 3, height, width) uint8.
        targets: (n, c) uint8, 1 where the label is present.
    """

    name: str
    label_names: tuple[str, ...]
    ids: tuple[str, ...]
    images: NDArray[np.uint8]
    targets: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.images)


def load_pixels(dataset: Dataset, *, workers: int | None = None, cache: Path | None = None) -> Pixels:
    """Every picture of the dataset in order, decoded once; one that cannot be read raises `DataError`.

    Args:
        dataset: Pictures of one size: open it with `size`.
        workers: Decoding threads (Pillow decodes outside the interpreter's lock); None for one a core.
        cache: A folder to keep the decoded arrays in, so that a second call only maps them. An entry is known
            by the dataset's name, ids and picture size: clear it after editing pictures or labels in place.
    """
    ids = tuple(dataset.ids)
    if cache is None:
        images, targets = _decode(dataset, workers or os.cpu_count() or 1)
    else:
        images, targets = _cached(dataset, ids, workers or os.cpu_count() or 1, cache)
    return Pixels(dataset.name, tuple(dataset.label_names), ids, images, targets)


def _decode(dataset: Dataset, workers: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if len(dataset) == 0:
        raise DataError(f"{dataset.name}: no pictures to decode")
    images = np.empty((len(dataset), *dataset[0].image.shape), dtype=np.uint8)
    targets = np.zeros((len(dataset), len(dataset.label_names)), dtype=np.uint8)

    def fill(index: int) -> None:
        sample = dataset[index]
        if sample.image.shape != images.shape[1:] or sample.image.dtype != np.uint8:
            found = f"{sample.image.dtype} {sample.image.shape}"
            raise DataError(f"{sample.id}: {found} among uint8 {images.shape[1:]}; open the dataset with one size")
        images[index] = sample.image
        targets[index, list(sample.labels)] = 1

    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(fill, range(len(dataset))):
            pass
    return images, targets


def _cached(
    dataset: Dataset, ids: tuple[str, ...], workers: int, cache: Path
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    key = hashlib.sha256("\0".join((dataset.name, str(dataset[0].image.shape), *ids)).encode()).hexdigest()[:32]
    paths = (cache / f"{key}-images.npy", cache / f"{key}-targets.npy")
    if not all(path.is_file() for path in paths):
        cache.mkdir(parents=True, exist_ok=True)
        for path, array in zip(paths, _decode(dataset, workers), strict=True):
            write_atomically(path, partial(np.save, arr=array, allow_pickle=False))
    images, targets = (np.load(path, mmap_mode="r") for path in paths)
    return images, targets
