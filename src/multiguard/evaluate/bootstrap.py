"""How far averages over images, and differences of two, would vary with other images: the percentile bootstrap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from multiguard.certify.arrays import Floats
from multiguard.errors import InvalidInputError
from multiguard.evaluate.scores import Averaging, Counts, ratio
from multiguard.io.short_repr import short_repr

# Resampled images and scores are held about this many at a time.
_NUMBERS_AT_A_TIME = 1 << 22


@dataclass(frozen=True, eq=False)
class Bands:
    """Where the averages lie in the middle `level` of resamples of the images.

    They are about the choice of images only, not about the noise draws, which alpha covers.
    """

    level: float  # the fraction of the resamples between low and high
    resamples: int  # how many times the images were drawn again, with replacement
    seed: int  # the seed of the resamples
    precision: tuple[Floats, Floats]  # low and high, each (radii,)
    recall: tuple[Floats, Floats]  # low and high, each (radii,)
    f1: tuple[Floats, Floats]  # low and high, each (radii,)

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Differences:
    """By how much the averages of one run exceed those of another on the same images, and where that lies.

    Low and high hold the middle `level` of resamples, each of which draws the same images for both runs. So what makes
    an image hard for both takes no part in them. They are about the choice of images only.
    """

    level: float  # the fraction of the resamples between low and high
    resamples: int  # how many times the images were drawn again, with replacement
    seed: int  # the seed of the resamples
    precision: tuple[Floats, Floats, Floats]  # difference, low and high, each (radii,)
    recall: tuple[Floats, Floats, Floats]  # difference, low and high, each (radii,)
    f1: tuple[Floats, Floats, Floats]  # difference, low and high, each (radii,)

    __repr__ = short_repr


@dataclass(frozen=True)
class Resampling:
    """The options of bands: their level in (0, 1), the number of resamples, and their seed."""

    level: float
    resamples: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise InvalidInputError(f"the level of bands lies between 0 and 1, such as 0.95, but it is {self.level!r}")
        if self.resamples < 1:
            raise InvalidInputError(f"resamples must be at least 1, got {self.resamples!r}")
        if self.seed < 0:
            raise InvalidInputError(f"the seed of the bands must not be negative, got {self.seed!r}")


def bootstrap_bands(counts: Counts, averaging: Averaging, resampling: Resampling) -> Bands:
    """The percentile bootstrap, over the images that count, of the averages that `average_scores` gives."""
    low_high = (_band(*fraction, averaging, resampling) for fraction in counts.fractions(averaging))
    precision, recall, f1 = ((low, high) for low, high in low_high)
    return Bands(resampling.level, resampling.resamples, resampling.seed, precision, recall, f1)


def bootstrap_differences(
    ours: Counts, theirs: Counts, averaging: Averaging, resampling: Resampling
) -> tuple[tuple[Floats, Floats], ...]:
    """Of precision, recall and F1 the low and high end of our average minus theirs, in resamples of the same images."""

    def ends(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        mine, others = (_resampled(*fraction, averaging, resampling) for fraction in (one, other))
        low, high = _ends((a - b for a, b in zip(mine, others, strict=True)), resampling)
        return low, high

    pairs = zip(ours.fractions(averaging), theirs.fractions(averaging), strict=True)
    return tuple(ends(one, other) for one, other in pairs)


def _band(numerator: Floats, denominator: Floats, averaging: Averaging, resampling: Resampling) -> Floats:
    """(low and high, radii) of the averages of fractions (radii, images)."""
    return _ends(_resampled(numerator, denominator, averaging, resampling), resampling)


def _ends(resampled: Iterable[Floats], resampling: Resampling) -> Floats:
    """(low and high, radii) of numbers (resamples, some radii), some radii at a time."""
    ends = [(1 - resampling.level) / 2, (1 + resampling.level) / 2]
    return np.concatenate([np.quantile(each, ends, axis=0) for each in resampled], axis=1)


def _resampled(
    numerator: Floats, denominator: Floats, averaging: Averaging, resampling: Resampling
) -> Iterator[Floats]:
    """(resamples, some radii) of the averages of fractions (radii, images), some radii at a time."""
    if averaging == "mean":
        numerator, denominator = ratio(numerator, denominator), np.ones_like(numerator)
    step = max(1, _NUMBERS_AT_A_TIME // resampling.resamples)
    for start in range(0, len(numerator), step):
        top, bottom = numerator[start : start + step].T, denominator[start : start + step].T
        averages = [ratio(times @ top, times @ bottom) for times in _times_drawn(len(top), resampling)]
        yield np.concatenate(averages)


def _times_drawn(images: int, resampling: Resampling) -> Iterator[Floats]:
    """How often each image is drawn in each resample, (some resamples, images) at a time."""
    rng = np.random.default_rng(resampling.seed)
    step = max(1, _NUMBERS_AT_A_TIME // images)
    for start in range(0, resampling.resamples, step):
        rows = min(step, resampling.resamples - start)
        drawn = rng.integers(images, size=(rows, images)) + images * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * images).reshape(rows, images).astype(np.float64)
