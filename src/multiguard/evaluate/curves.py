"""Certified scores over a grid of radii: one curve for each method, setting and averaging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method, Radii
from multiguard.certify.arrays import Floats
from multiguard.errors import InvalidInputError
from multiguard.evaluate.bootstrap import Bands, Resampling, bootstrap_bands
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.certifier import Labels
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.scores import Averaging, Scores, average_scores, certified_counts, check_radius

AVERAGINGS: tuple[Averaging, ...] = get_args(Averaging)
_MOST_RADII = 100_000


@dataclass(frozen=True, eq=False)
class Curve:
    """The average certified scores of a set of images at each radius; each image's part is right with 1 - alpha.

    Attributes:
        method: What the radii were proved with.
        config: What is certified; n is a number, in an adaptive run the most draws that an image took.
        sigma: The noise.
        averaging: How images are averaged.
        scores: Precision, recall and F1, each (radii,), and how many images they are taken over.
        mean_draws: How many draws these images took on average.
        failed: How many images could not be voted on and are left out.
        bands: How far the averages would vary with other images, where that was asked for.
    """

    method: Method
    config: CertifyConfig
    sigma: float
    averaging: Averaging
    scores: Scores
    mean_draws: float
    failed: int
    bands: Bands | None = None


def curves(
    certificates: Certificates,
    radius: ArrayLike,
    *,
    bands: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Curve]:
    """The certified scores at exactly these radii, of every method and in both averagings.

    Images without labels are left out and counted, and so are those that could not be voted on.

    Args:
        certificates: What `certify_votes` returns.
        radius: (radii,), the l2-norms to ask about.
        bands: The level of bootstrap bands over images, such as 0.95; None for no bands.
        resamples: How many times the bands draw the images anew.
        seed: The seed of these draws; all curves share them.
    """
    asked = check_radius(radius)
    drawn = None if bands is None else Resampling(bands, resamples, seed)
    failed = len(certificates.failures)
    images = Images(certificates.config, certificates.sigma, certificates.labels, certificates.draws, failed)
    return [
        curve
        for method in certificates.methods
        for curve in averaged(method, images, certificates.set_radii(method), asked, drawn)
    ]


@dataclass(frozen=True, eq=False)
class Images:
    """What the curves of all methods have in common: what was asked of which images.

    Attributes:
        config: What is certified; n is a number.
        sigma: The noise.
        labels: L of each image.
        draws: How many draws certify each image.
        failed: How many further images could not be voted on.
    """

    config: CertifyConfig
    sigma: float
    labels: Sequence[Labels]
    draws: Sequence[int]
    failed: int

    def mean_draws(self) -> float:
        """Over the images that have labels, which are those that scores are taken over."""
        return float(np.mean([taken for taken, own in zip(self.draws, self.labels, strict=True) if own]))


def averaged(
    method: Method,
    images: Images,
    radii: Sequence[Radii],
    radius: Floats,
    resampling: Resampling | None = None,
) -> list[Curve]:
    """One method's curves of one setting, in both averagings."""
    num_true = [len(own) for own in images.labels]
    counts = certified_counts(radii, num_true, images.config.rule, radius)
    return [
        Curve(
            method,
            images.config,
            images.sigma,
            averaging,
            average_scores(counts, radius, averaging),
            images.mean_draws(),
            images.failed,
            None if resampling is None else bootstrap_bands(counts, averaging, resampling),
        )
        for averaging in AVERAGINGS
    ]


def radius_grid(sigma: float, *, to: float | None = None, step: float | None = None) -> Floats:
    """The radii 0, step, 2 step, ... up to `to`, each the very float that its decimal text means.

    So 0.15 of the grid is the 0.15 that a reader types, not 3 x 0.05, and a claim at R is a claim at the R shown.

    Args:
        sigma: The noise, positive.
        to: The end, which belongs to the grid if a whole number of steps leads to it; 3 sigma by default.
        step: The distance of two radii; sigma / 20 by default.
    """
    named = {"sigma": sigma, "the step between radii (--radius-step)": step, "the largest radius (--radius-to)": to}
    for name, value in named.items():
        if value is not None and not 0 < value < math.inf:
            raise InvalidInputError(f"{name} must be positive and finite, got {value!r}")
    noise = Decimal(repr(float(sigma)))
    stride = noise / 20 if step is None else Decimal(repr(float(step)))
    end = 3 * noise if to is None else Decimal(repr(float(to)))
    count = end // stride + 1
    if count > _MOST_RADII:
        raise InvalidInputError(f"steps of {stride} up to {end} are {count} radii, more than {_MOST_RADII:,}")
    return np.array([float(stride * index) for index in range(int(count))])
