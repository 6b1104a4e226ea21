"""How far averages over images, and differences of two, would vary with other images: the percentile bootstrap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.arrays import Floats
from multiguard.errors import InvalidInputError
from multiguard.evaluate.scores import Averaging, CertifiedCounts, Counts, ratio
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


def bootstrap_bands(counts: CertifiedCounts, averaging: Averaging, resampling: Resampling) -> Bands:
    """The percentile bootstrap, over the images that count, of the averages that `average_scores` gives."""
    precision, recall, f1 = (_ends(each, resampling) for each in _resampled(counts, averaging, resampling))
    return Bands(resampling.level, resampling.resamples, resampling.seed, precision, recall, f1)


def bootstrap_differences(
    ours: CertifiedCounts, theirs: CertifiedCounts, averaging: Averaging, resampling: Resampling
) -> tuple[tuple[Floats, Floats], ...]:
    """Of precision, recall and F1 the low and high end of our average minus theirs, in resamples of the same images."""
    mine, others = (_resampled(counts, averaging, resampling) for counts in (ours, theirs))
    return tuple(_ends(one - other, resampling) for one, other in zip(mine, others, strict=True))


def _ends(resampled: Floats, resampling: Resampling) -> tuple[Floats, Floats]:
    """Low and high, each (radii,), of numbers (resamples, radii)."""
    low, high = np.quantile(resampled, [(1 - resampling.level) / 2, (1 + resampling.level) / 2], axis=0)
    return low, high


def _resampled(counts: CertifiedCounts, averaging: Averaging, resampling: Resampling) -> list[Floats]:
    """(resamples, radii) of precision, recall and F1 in each resample of the images, some images at a time."""
    sizes = [int(part.labelled.sum()) if averaging == "mean" else len(part.true) for part in counts]
    sums: list[Floats] = []
    for part, times in zip(counts, _times_drawn(sizes, resampling), strict=True):
        values = _summands(part, averaging)
        products = [[each @ value.T for value in values] for each in times]
        new = [np.concatenate(each) for each in zip(*products, strict=True)]
        sums = [old + one for old, one in zip(sums, new, strict=True)] if sums else new
    if averaging == "mean":
        return [each / sum(sizes) for each in sums]
    floors, returned, true = (np.broadcast_to(each, sums[0].shape) for each in sums)
    return [ratio(floors, returned), ratio(floors, true), ratio(2 * floors, returned + true)]


def _summands(part: Counts, averaging: Averaging) -> list[Floats]:
    """What is added up over images: precision, recall and F1 of each, or the counts that pooled ones are made of."""
    (floors, returned), (_, true), _ = fractions = part.fractions(averaging)
    return [ratio(*each) for each in fractions] if averaging == "mean" else [floors, returned, true[:1]]


def _times_drawn(sizes: Sequence[int], resampling: Resampling) -> Iterator[Iterator[Floats]]:
    """For each part of the images how often each of its images is drawn in each resample, (some resamples, images).

    How many of a resample's draws fall into each part is multinomial, and within a part all images are alike: together
    that is one draw with replacement from all images.
    """
    total, parts = sum(sizes), len(sizes)
    drawn = np.full((resampling.resamples, 1), total)
    if parts > 1:
        shares = np.array(sizes) / total
        drawn = np.random.default_rng([resampling.seed, parts]).multinomial(total, shares, resampling.resamples)
    for number, size in enumerate(sizes):
        seed = resampling.seed if parts == 1 else [resampling.seed, parts, number]
        yield _times(size, drawn[:, number], seed)


def _times(images: int, drawn: NDArray[np.int64], seed: int | list[int]) -> Iterator[Floats]:
    """How often each image is drawn where so many draws of each resample are made, some resamples at a time."""
    rng = np.random.default_rng(seed)
    step = max(1, _NUMBERS_AT_A_TIME // max(1, images))
    for start in range(0, len(drawn), step):
        some = drawn[start : start + step]
        places = np.repeat(images * np.arange(len(some)), some)
        places += rng.integers(images, size=len(places))
        yield np.bincount(places, minlength=len(some) * images).reshape(len(some), images).astype(np.float64)
