"""Adaptive draws: looks at growing numbers of draws, fixed beforehand, and what the votes at all of them prove."""

from collections.abc import Iterable
from dataclasses import dataclass

from numpy.typing import ArrayLike

from multiguard.certify.threshold import ThresholdRadii
from multiguard.certify.types import Floats, Method, ThresholdMethod


@dataclass(frozen=True)
class Looks:
    """The numbers of draws at which a picture may be looked at, and what each look may spend of alpha.

    Fixed before any draw. A picture may stop at any look, for any reason.

    Attributes:
        draws: n_1 < n_2 < ..., the draws taken in all at each look.
        shares: Of alpha, one for each look: positive, their sum at most 1.
    """

    draws: tuple[int, ...]
    shares: tuple[float, ...]


def look_plan(max_draws: int) -> Looks:
    """Looks up to `max_draws` that serve well in general."""
    raise NotImplementedError


def adaptive_radii(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    looks: Looks,
    k: int,
    k_prime: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> Floats:
    """The promise of `certified_radii`, whatever rule decided at which look to stop.

    With probability at least 1 - alpha over the draws the radii of every look hold, so the best of them do.

    Args:
        hits: As in `certified_radii`; the number of draws must be one of `looks.draws`.
        labels: As in `certified_radii`.
        looks: The looks, fixed before the draws.
        k: As in `certified_radii`.
        k_prime: As in `certified_radii`.
        sigma: As in `certified_radii`.
        alpha: As in `certified_radii`, for all looks together.
        method: As in `certified_radii`.
    """
    raise NotImplementedError


def adaptive_radii_batch(
    ranked: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    *,
    looks: Looks,
    num_labels: int,
    k: int,
    k_prime: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> list[Floats]:
    """For each picture the promise of `adaptive_radii`, from ranked votes as `certified_radii_batch` takes them."""
    raise NotImplementedError


def adaptive_threshold_radii_batch(
    hits: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    *,
    looks: Looks,
    num_labels: int,
    threshold: float,
    sigma: float,
    alpha: float = 0.001,
    method: ThresholdMethod = "joint",
) -> list[ThresholdRadii]:
    """For each picture the promise of `threshold_radii`, whatever rule decided at which look to stop."""
    raise NotImplementedError
