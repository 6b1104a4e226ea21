"""The built-in dataset: handwritten digits, one to four of different classes on a canvas, none covering another.

The digits are scikit-learn's 1,797 (UCI, 8x8 pixels), divided once for all seeds: 70 % to train, 10 % to val and 20 %
to test, so no handwriting is in two splits. The seed decides which digits share a canvas and where they are.
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
_FRACTIONS = {"train": (0.0, 0.7), "val": (0.7, 0.8), "test": (0.8, 1.0)}
_DIVISION_SEED = 1797
_MIN_CANVAS = 16


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
        size: Height and width of a canvas; None for 32.
        images: How many canvases; None for 6,000, 500 or 1,000.
        seed: Which digits share a canvas, and where; the division into splits does not depend on it.

    >>> dataset = DigitsDataset("val", images=50, seed=1)
    >>> dataset.name, dataset[0].labels
    ('digits val (seed 1)', (2, 3, 6))
    """

    def __init__(self, split: str = "test", *, size: int | None = None, images: int | None = None, seed: int = 0):
        size = 32 if size is None else size
        if split not in DIGIT_IMAGES:
            raise DataError(f"digits: {unknown_name('split', split, DIGIT_IMAGES)}")
        if size < _MIN_CANVAS:
            raise DataError(f"digits: a canvas of {size} pixels is too small; the size must be at least {_MIN_CANVAS}")
        if seed < 0:
            raise DataError(f"digits: the seed is {seed}; it must be at least 0")
        self.split, self.size, self.seed = split, size, seed
        self.images = DIGIT_IMAGES[split] if images is None else images
        self.name = f"digits {split} (seed {seed})"
        self.label_names: Sequence[str] = DIGIT_LABELS
        self.ids: Sequence[str] = [f"{split}-{seed}-{index:05d}" for index in range(self.images)]

    @property
    def labels(self) -> Sequence[tuple[int, ...]]:
        """The labels of each sample."""
        return [_labels_of(self.layout(index)) for index in range(self.images)]

    @property
    def origins(self) -> Sequence[str]:
        """For each sample all that determines its canvas."""
        return [f"digits {image_id} at {self.size}" for image_id in self.ids]

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int, /) -> Sample:
        index = range(self.images)[index]
        layout = self.layout(index)
        return Sample(self.ids[index], np.stack([_draw(layout, self.size)] * 3), _labels_of(layout))

    def layout(self, index: int) -> tuple[Placement, ...]:
        """The digits of a canvas: one to four of different classes, in different quarters."""
        rng = np.random.default_rng([self.seed, list(DIGIT_IMAGES).index(self.split), index])
        count = int(rng.integers(1, 5))
        labels = rng.choice(10, size=count, replace=False)
        quarters = rng.choice(4, size=count, replace=False)
        return tuple(
            _place(rng, int(label), int(quarter), _sources(self.split)[label], self.size // 2)
            for label, quarter in zip(labels, quarters, strict=True)
        )


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
    """The source digits (1797, 8, 8), scaled from 0..16 to 0..255, and their classes."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


@cache
def _sources(split: str) -> tuple[NDArray[np.int64], ...]:
    """For each class, the indices of the source digits that belong to this split."""
    classes = _handwriting()[1]
    order = np.random.default_rng(_DIVISION_SEED).permutation(len(classes))
    start, stop = (round(fraction * len(classes)) for fraction in _FRACTIONS[split])
    chosen = np.sort(order[start:stop])
    return tuple(chosen[classes[chosen] == label] for label in range(10))
