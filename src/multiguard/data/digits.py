"""The embedded dataset: real handwritten digits, one to four of different classes on a canvas, none covered.

The digits are scikit-learn's 1,797 (UCI, 8x8 pixels). A fixed division by source digit, the same for every
seed, gives 70 % of them to train, 10 % to val and 20 % to test, so no handwriting is in two splits. The seed
decides which digits meet on a canvas and where they stand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from multiguard.data.sample import Sample
from multiguard.errors import DataError
from multiguard.io.names import unknown_name

DIGIT_LABELS = tuple(str(digit) for digit in range(10))
DIGIT_IMAGES = {"train": 6000, "val": 500, "test": 1000}
_SHARES = {"train": (0.0, 0.7), "val": (0.7, 0.8), "test": (0.8, 1.0)}
_DIVISION_SEED = 1797
_SMALLEST_CANVAS = 16
_INK = 16


@dataclass(frozen=True)
class Placement:
    """One digit on a canvas: its label, its index among the source digits, and its square."""

    label: int
    source: int
    top: int
    left: int
    side: int


class DigitsDataset:
    """Canvases of handwritten digits, each a pure function of (seed, split, index, size).

    Args:
        split: train, val or test.
        size: Height and width of a canvas.
        images: How many canvases; None takes the split's usual number.
        seed: Which digits meet, and where; the division into splits does not depend on it.
    """

    def __init__(self, split: str = "test", *, size: int = 32, images: int | None = None, seed: int = 0) -> None:
        if split not in DIGIT_IMAGES:
            raise DataError(f"digits: {unknown_name('split', split, DIGIT_IMAGES)}")
        if size < _SMALLEST_CANVAS:
            raise DataError(f"digits: a canvas of {size} pixels is too small; take at least {_SMALLEST_CANVAS}")
        if seed < 0:
            raise DataError(f"digits: the seed is {seed}; it must be 0 or more")
        self.split = split
        self.size = size
        self.seed = seed
        self.images = DIGIT_IMAGES[split] if images is None else images
        self.label_names: Sequence[str] = DIGIT_LABELS

    @property
    def name(self) -> str:
        """Which dataset, split and seed this is."""
        return f"digits/{self.split}?seed={self.seed}"

    @property
    def ids(self) -> Sequence[str]:
        """The id of each sample, in order."""
        return [self._id(index) for index in range(self.images)]

    @property
    def labels(self) -> Sequence[tuple[int, ...]]:
        """The labels of each sample, in order, known without drawing any canvas."""
        return [_labels_of(self.layout(index)) for index in range(self.images)]

    @property
    def origins(self) -> Sequence[str]:
        """For each sample, in order, everything that its canvas is a function of."""
        return [f"digits {self._id(index)} at {self.size}" for index in range(self.images)]

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int, /) -> Sample:
        layout = self.layout(range(self.images)[index])
        canvas = _draw(layout, self.size)
        image = np.ascontiguousarray(np.broadcast_to(canvas, (3, self.size, self.size)))
        return Sample(id=self._id(range(self.images)[index]), image=image, labels=_labels_of(layout))

    def layout(self, index: int) -> tuple[Placement, ...]:
        """Which digits stand where: one to four of different classes, in different quarters of the canvas."""
        rng = np.random.default_rng([self.seed, list(DIGIT_IMAGES).index(self.split), index])
        count = int(rng.integers(1, 5))
        labels = rng.choice(10, size=count, replace=False)
        quarters = rng.choice(4, size=count, replace=False)
        pool = _sources(self.split)
        return tuple(
            _place(rng, int(label), int(quarter), pool[int(label)], self.size // 2)
            for label, quarter in zip(labels, quarters, strict=True)
        )

    def _id(self, index: int) -> str:
        return f"{self.split}-{self.seed}-{index:05d}"


def _labels_of(layout: Sequence[Placement]) -> tuple[int, ...]:
    return tuple(sorted(placement.label for placement in layout))


def _place(rng: np.random.Generator, label: int, quarter: int, pool: NDArray[np.int64], cell: int) -> Placement:
    side = int(rng.integers(cell - cell // 4, cell + 1))
    top, left = (int(offset) for offset in rng.integers(0, cell - side + 1, size=2))
    return Placement(label, int(rng.choice(pool)), top + cell * (quarter // 2), left + cell * (quarter % 2), side)


def _draw(layout: Sequence[Placement], size: int) -> NDArray[np.uint8]:
    canvas = np.zeros((size, size), dtype=np.uint8)
    for p in layout:
        digit = Image.fromarray(_handwriting()[0][p.source]).resize((p.side, p.side), Image.Resampling.BICUBIC)
        canvas[p.top : p.top + p.side, p.left : p.left + p.side] = np.asarray(digit)
    return canvas


@cache
def _handwriting() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The source digits (1797, 8, 8), ink scaled to 0..255, and their classes."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.round(bunch.images * (255 / _INK)).astype(np.uint8), bunch.target.astype(np.int64)


@cache
def _sources(split: str) -> tuple[NDArray[np.int64], ...]:
    """For each class, the indices of the source digits that belong to this split."""
    classes = _handwriting()[1]
    order = np.random.default_rng(_DIVISION_SEED).permutation(len(classes))
    start, stop = (round(share * len(classes)) for share in _SHARES[split])
    ours = np.sort(order[start:stop])
    return tuple(ours[classes[ours] == label] for label in range(10))
