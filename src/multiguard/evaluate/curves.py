"""Certified scores over a grid of radii: one curve for each method, config and averaging."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.certify.arguments import Floats, check_fraction
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.intervals import Bands, mean_bands, mean_differences
from multiguard.evaluate.scores import Averaging, Scores, average_scores, check_radius
from multiguard.io.names import short_repr

AVERAGINGS: tuple[Averaging, ...] = get_args(Averaging)
_MOST_RADII = 100_000


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
