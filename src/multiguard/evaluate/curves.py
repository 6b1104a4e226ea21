"""Curves of certified scores, one for each method, config and averaging; and what holds of the means in them.

**Test set.** Each image's score is false with probability at most alpha, and the noise of different images is
independent: more than q are false with probability at most P(Bin(N, alpha) > q), so the sum without the q largest is no
more than that of the true scores. **Population.** A score is at most the true one, or false: its mean exceeds the true
mean by at most alpha. **Means.** For independent x_i in [0, 1] with a mean of at most m, and 0 < theta < 1,

    K(m) = mean over theta of  prod_i (1 - theta + theta x_i / m)

has mean at most 1 and falls as m rises, so with probability at least 1 - a the mean is no less than the largest m with
K(m) >= 1/a. The thetas are fixed by n alone. `docs/calibration.md` has the proofs. A difference of two scores of one
image lies in [-1, 1]; (difference + 1) / 2 is bounded in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.certify.arguments import Floats, Ints, check_fraction
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.scores import Averaging, Counts, Scores, average_scores, check_radius, ratio
from multiguard.io.names import short_repr

AVERAGINGS: tuple[Averaging, ...] = get_args(Averaging)
_MOST_RADII = 100_000
TEST_SET_ERROR = 0.002  # the probability that what is said of all images of a set is false
_STAKES, _LARGEST_STAKE = 8, 0.99
_STEPS = 30  # of a bisection, whose safe end is returned
_ROUNDING = 1e-9  # by which log K must exceed what is needed


@dataclass(frozen=True, eq=False)
class Bands:
    """Mean scores at each radius: what holds of all these images, and of images like these, a random sample.

    The intervals are about the choice of images only, not about the noise draws; the floors are about both.
    """

    level: float  # the confidence of each interval, and of each floor of the population
    precision: tuple[Floats, Floats]  # low and high, each (radii,)
    recall: tuple[Floats, Floats]  # low and high, each (radii,)
    f1: tuple[Floats, Floats]  # low and high, each (radii,)
    test_set: tuple[Floats, Floats, Floats]  # floors of the three means over these images, at 1 - TEST_SET_ERROR
    population: tuple[Floats, Floats, Floats]  # floors of the three means over images like these

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Curve:
    """Certified scores at each radius, averaged over images, each of them right with its own probability 1 - alpha."""

    method: Method  # the method that proved the radii
    config: CertifyConfig  # what is certified; draws is a number, in an adaptive run the most that an image took
    noise: Noise  # the noise, which says what the radius is the size of
    averaging: Averaging  # how images are averaged
    scores: Scores  # precision, recall and F1, each (radii,), and how many images they are taken over
    mean_draws: float  # how many draws these images took on average
    failed: int  # how many images could not be voted on and are left out
    bands: Bands | None = None  # intervals of the means; None where not requested, and of pooled scores

    __repr__ = short_repr


def curves(certificates: Certificates, radius: ArrayLike, *, bands: float | None = None) -> list[Curve]:
    """The certified scores at exactly these radii, of every method and in both averagings.

    Images without labels are counted: they have no part in means of scores, but in pooled ones and in the mean number
    of wrong labels. Images that could not be voted on are left out and counted.

    Args:
        certificates: Those of `certify_votes`.
        radius: (radii,), in the unit of the noise's attacker.
        bands: The confidence of the intervals of mean scores, such as 0.95; None for none. They hold for any number of
            images; pooled scores, which are ratios of sums, have none.

    >>> from multiguard import CertifyConfig, certify_votes, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> certificates = certify_votes(CertifyConfig(k=10, k_prime=3), votes).certificates
    >>> [(curve.method, curve.averaging, curve.scores.images) for curve in curves(certificates, [0.0, 0.25, 0.5])]
    [('joint', 'mean', 3), ('joint', 'pooled', 3)]
    """
    requested = check_radius(radius, certificates.noise)
    level = None if bands is None else check_fraction("the level of bands", bands)
    pairs = [(method, averaging) for method in certificates.methods for averaging in AVERAGINGS]
    return [_curve(certificates, *pair, requested, None if pair[1] == "pooled" else level) for pair in pairs]


def method_curve(certificates: Certificates, method: Method, radius: ArrayLike, averaging: Averaging = "mean") -> Curve:
    """The certified scores of one method at exactly these radii, without bands; see `curves`."""
    return _curve(certificates, method, averaging, check_radius(radius, certificates.noise), None)


def _curve(
    certificates: Certificates, method: Method, averaging: Averaging, radius: Floats, level: float | None
) -> Curve:
    scores = average_scores(certificates.counts(method, radius), radius, averaging)
    return Curve(
        method,
        certificates.config,
        certificates.noise,
        averaging,
        scores,
        float(np.mean(np.array(certificates.draws)[certificates.labels.lengths > 0])),
        len(certificates.failures),
        None if level is None else mean_bands(certificates.counts(method, radius), level, certificates.alpha),
    )


def paired_differences(
    ours: Certificates,
    theirs: Certificates,
    radius: ArrayLike,
    *,
    methods: tuple[Method, Method],
    level: float = 0.95,
) -> dict[str, tuple[Floats, Floats, Floats]]:
    """With probability at least `level`, the mean difference of two scores on images like these lies in its interval.

    The images are a random sample, and each is compared with itself, so what makes an image hard for both takes no
    part. An interval holds for one score at one radius. It says nothing of other noise draws, nor of the best of many
    runs.

    Args:
        ours: What one run proves.
        theirs: What the other proves, of the same images in the same order, with as many labels each.
        radius: (radii,), in the unit of the noise's attacker.
        methods: The method of each.
        level: The confidence of each interval.

    Returns:
        For "precision", "recall" and "f1" the difference, ours minus theirs, the low and the high end, each (radii,).
    """
    requested = check_radius(radius, ours.noise)
    if ours.noise.attacker != theirs.noise.attacker:
        raise InvalidInputError(
            f"one run is about {ours.noise.axis_label}, the other about {theirs.noise.axis_label}: the same radius is "
            "not the same attack; compare runs of one attacker"
        )
    if ours.ids != theirs.ids or not np.array_equal(ours.labels.lengths > 0, theirs.labels.lengths > 0):
        raise InvalidInputError("paired differences need the same images with labels, in the same order; see `only`")
    mine, others = (each.counts(method, requested) for each, method in zip((ours, theirs), methods, strict=True))
    return mean_differences(mine, others, level)


def radius_grid(noise: Noise, *, to: float | None = None, step: float | None = None) -> Floats:
    """The radii 0, step, 2 step, ... up to `to`, each the float that its decimal text means.

    So 0.15 on the grid is the 0.15 that a reader types, not 3 x 0.05, and a claim at R is a claim at the R shown.

    Args:
        noise: The noise; where its attacker changes pixels, radii are whole numbers.
        to: The end, which belongs to the grid if a whole number of steps leads to it; by default 3 sigma, or
            where the total variation is 0.6, beyond which little can be proved.
        step: The distance of two radii; by default sigma / 20, half_width / 20, or 1.

    >>> from multiguard.certify import Gaussian
    >>> radius_grid(Gaussian(0.5), to=0.3, step=0.1)
    array([0. , 0.1, 0.2, 0.3])
    """
    named = {"radius_step": step, "radius_to": to}
    for name, value in named.items():
        if value is not None and not 0 < value < math.inf:
            raise InvalidInputError(f"{name} must be positive and finite, got {value!r}")
        if value is not None and noise.whole and value != int(value):
            raise InvalidInputError(f"{name} counts pixels and must be a whole number, got {value!r}")
    default_step, default_end = noise.default_grid
    stride = default_step if step is None else Decimal(repr(float(step)))
    end = default_end if to is None else Decimal(repr(float(to)))
    if end / stride >= _MOST_RADII:
        raise InvalidInputError(f"steps of {stride} up to {end} are more than {_MOST_RADII:,} radii; take larger steps")
    return np.array([float(stride * index) for index in range(int(end // stride) + 1)])


def mean_bands(counts: Iterable[Counts], level: float, alpha: float) -> Bands:
    """What holds of mean precision, recall and F1 of images with labels, each false with probability alpha."""
    tallies = _tallies(map(_image_scores, counts))
    precision, recall, f1 = (_interval(*each, level) for each in tallies)
    tests = [_surely(values, times, alpha) / np.maximum(times.sum(axis=1), 1) for values, times in tallies]
    means = [np.maximum(_lower(*each, 1 - level) - alpha, 0.0) for each in tallies]
    return Bands(level, precision, recall, f1, (tests[0], tests[1], tests[2]), (means[0], means[1], means[2]))


def surely_staying(counts: Iterable[Counts], alpha: float) -> Floats:
    """(radii,) with probability at least 1 - TEST_SET_ERROR over all draws, the labels of all images that stay."""
    ((values, times),) = _tallies([part.floors[..., part.labelled]] for part in counts)
    return _surely(values, times, alpha)


def most_false(images: int, alpha: float) -> int:
    """With probability at least 1 - TEST_SET_ERROR no more of the images have a false certificate.

    >>> most_false(500, 0.001), most_false(500, 0.0)
    (3, 0)
    """
    more = scipy.special.bdtrc(np.arange(images + 1), images, alpha)
    return int(np.argmax(more <= TEST_SET_ERROR * (1 - _ROUNDING)))


def mean_differences(
    ours: Iterable[Counts], theirs: Iterable[Counts], level: float
) -> dict[str, tuple[Floats, Floats, Floats]]:
    """The mean differences of precision, recall and F1, ours minus theirs, and both ends of their intervals."""
    apart = (
        [(mine - other + 1) / 2 for mine, other in zip(_image_scores(one), _image_scores(two), strict=True)]
        for one, two in zip(ours, theirs, strict=True)
    )
    found = (_difference(*each, level) for each in _tallies(apart))
    return dict(zip(("precision", "recall", "f1"), found, strict=True))


def mean_at_least(values: Floats, confidence: float) -> float:
    """With this confidence the mean of the population is no less; no value of the sample can rise and the bound fall.

    >>> round(mean_at_least(np.array([1.0, 1.0, 0.5, 1.0] * 25), 0.95), 2)
    0.81
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not given.size or not np.all((given >= 0) & (given <= 1)):
        raise InvalidInputError("values must be a list of at least one number from 0 to 1: the bound is for those only")
    return float(_lower(*_tally(given[None]), 1 - check_fraction("confidence", confidence))[0])


def _image_scores(part: Counts) -> list[Floats]:
    """(radii, images) precision, recall and F1 of each image with labels."""
    return [ratio(*fraction) for fraction in part.fractions("mean")]


def _tallies(parts: Iterable[list[Floats]]) -> list[tuple[Floats, Ints]]:
    """For each score its different values, and (radii, values) how many images have each: few numbers for any n."""
    merged: list[tuple[Floats, Ints]] = []
    for part in parts:
        new = [_tally(values) for values in part]
        merged = [_merge(*pair) for pair in zip(merged, new, strict=True)] if merged else new
    return merged


def _tally(values: Floats) -> tuple[Floats, Ints]:
    different, which = np.unique(values, return_inverse=True)
    rows = np.arange(len(values))[:, None] * len(different) + which.reshape(values.shape)
    return different, np.bincount(rows.ravel(), minlength=len(values) * len(different)).reshape(len(values), -1)


def _merge(one: tuple[Floats, Ints], two: tuple[Floats, Ints]) -> tuple[Floats, Ints]:
    values = np.union1d(one[0], two[0])
    times = np.zeros((len(one[1]), len(values)), np.int64)
    for own, counts in (one, two):
        times[:, np.searchsorted(values, own)] += counts
    return values, times


def _surely(values: Floats, times: Ints, alpha: float) -> Floats:
    """(radii,) the sum of the values without those that may be false, the largest."""
    images = int(times[0].sum())
    kept = np.minimum(np.cumsum(times, axis=1), images - most_false(images, alpha))
    return np.asarray(np.diff(kept, axis=1, prepend=0) @ values)


def _interval(values: Floats, times: Ints, level: float) -> tuple[Floats, Floats]:
    """(radii,) both ends, each wrong with probability at most (1 - level) / 2."""
    error = (1 - check_fraction("level", level)) / 2
    return _lower(values, times, error), 1 - _lower(1 - values, times, error)


def _difference(values: Floats, times: Ints, level: float) -> tuple[Floats, Floats, Floats]:
    """(radii,) the mean and both ends of 2 x - 1."""
    low, high = _interval(values, times, level)
    return 2 * (times @ values) / times.sum(axis=1) - 1, 2 * low - 1, 2 * high - 1


def _lower(values: Floats, times: Ints, error: float) -> Floats:
    """(radii,) the largest m with K(m) >= 1 / error, from below; 0 if there is none."""
    images = int(times[0].sum())
    stakes = np.geomspace(min(images**-0.5, _LARGEST_STAKE), _LARGEST_STAKE, _STAKES)[:, None]
    needed = np.log(_STAKES / error) + _ROUNDING
    low, high = np.zeros(len(times)), np.ones(len(times))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        logs = np.log1p(stakes * (values / middle[:, None, None] - 1))
        wealth = np.logaddexp.reduce(np.einsum("rsv,rv->rs", logs, times), axis=1)
        low, high = np.where(wealth >= needed, middle, low), np.where(wealth >= needed, high, middle)
    return low
