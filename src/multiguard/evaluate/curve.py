"""Certified scores over a grid of radii: one curve for each method, setting and averaging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method, ThresholdRadii
from multiguard.errors import InvalidInputError
from multiguard.evaluate.bootstrap import Bands, Resampling, bootstrap_bands
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.question import Labels, Proved
from multiguard.evaluate.scores import (
    Averaging,
    Counts,
    Floats,
    Scores,
    averaged_scores,
    threshold_counts,
    top_k_counts,
)
from multiguard.evaluate.setting import AnySetting, Setting

AVERAGINGS: tuple[Averaging, ...] = get_args(Averaging)
_MOST_RADII = 100_000


@dataclass(frozen=True, eq=False)
class Curve:
    """The average certified scores of a set of images at each radius; each image's part is right with 1 - alpha.

    Attributes:
        method: What the radii were proved with.
        setting: What was asked of the votes; its draws are a number, in an adaptive run the most that an image took.
        sigma: The noise.
        averaging: How images are averaged.
        scores: Precision, recall and F1, each (radii,), and how many images they are taken over.
        mean_draws: How many draws these images took on average.
        failed: How many images could not be voted on and are left out.
        bands: How far the averages would vary with other images, where that was asked for.
    """

    method: Method
    setting: AnySetting
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
    asked = checked_radius(radius)
    drawn = None if bands is None else Resampling(bands, resamples, seed)
    failed = len(certificates.failures)
    images = Images(certificates.setting, certificates.sigma, certificates.labels, certificates.draws, failed)
    return [
        curve
        for method in certificates.methods
        for curve in averaged(method, images, certificates.proved(method), asked, drawn)
    ]


@dataclass(frozen=True, eq=False)
class Images:
    """What the curves of all methods have in common: what was asked of which images.

    Attributes:
        setting: What was asked; its draws are a number.
        sigma: The noise.
        labels: L of each image.
        draws: How many draws certify each image.
        failed: How many further images could not be voted on.
    """

    setting: AnySetting
    sigma: float
    labels: Sequence[Labels]
    draws: Sequence[int]
    failed: int

    def mean_draws(self) -> float:
        """Over the images that have labels, which are those that scores are taken over."""
        return float(np.mean([taken for taken, own in zip(self.draws, self.labels, strict=True) if own]))

    def counts(self, proved: Sequence[Proved], radius: Floats) -> Counts:
        """What is certified of each image at each radius."""
        if isinstance(self.setting, Setting):
            num_true = [len(own) for own in self.labels]
            return top_k_counts([each.true for each in proved], num_true, self.setting.k, radius)
        floors_and_ceilings = [ThresholdRadii(each.true, each.false) for each in proved if each.false is not None]
        return threshold_counts(floors_and_ceilings, radius)


def averaged(
    method: Method,
    images: Images,
    proved: Sequence[Proved],
    radius: Floats,
    resampling: Resampling | None = None,
) -> list[Curve]:
    """One method's curves of one setting, in both averagings."""
    counts = images.counts(proved, radius)
    return [
        Curve(
            method,
            images.setting,
            images.sigma,
            averaging,
            averaged_scores(counts, radius, averaging),
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


def checked_radius(radius: ArrayLike) -> Floats:
    """The radii as one row of numbers, none negative; at least one."""
    asked = np.atleast_1d(np.asarray(radius, dtype=np.float64))
    if asked.ndim != 1 or asked.size == 0 or not np.all((asked >= 0) & np.isfinite(asked)):
        raise InvalidInputError(f"radius must be a list of at least one finite number, none negative, got {radius!r}")
    return asked
