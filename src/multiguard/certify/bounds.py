"""Bounds of the probability of an event: confidence bounds from draws, or exact values."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import Floats
from multiguard.errors import InvalidInputError

# SciPy's inverse of the incomplete beta function is mostly right to the last digit, but sometimes it stops short, on
# the side that would claim too much. So a bound is computed for a little less than alpha, and moved outwards until the
# distribution function confirms it at half that distance. Below levels of 1e-107 the inverse may be NaN where the
# bound is within 1e-29 of 0 or 1; the bound is then 0 or 1 itself.
_SLACK = 1e-7
_FIRST_MOVE = 1e-12
_MOST_DRAWS = 10**8
# Below 1e-243 SciPy's distribution function may come out as 0 and would confirm anything; a bound at a
# level that comes near this is 0 or 1, which never fails.
_LEAST_LEVEL = 1e-220
# Each addition of two doubles is right up to 2^-53 of the sum.
_SUM_ERROR = 2.0**-51


def clopper_pearson_lower(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at least this.

    The bound is the alpha-quantile of Beta(hits, draws - hits + 1), and 0 where nothing was hit or where alpha is below
    1e-220, too small to be computed with.

    Args:
        hits: In how many draws the event was seen; all three arguments broadcast against each other.
        draws: The number of independent draws.
        alpha: The probability that the bound may fail, in (0, 1).

    >>> clopper_pearson_lower(90, 100, 0.001).round(3)
    np.float64(0.775)
    """
    hits, draws, alpha = _check(hits, draws, alpha)
    a, b = np.maximum(hits, 1), draws - hits + 1
    bound = np.nan_to_num(scipy.special.betaincinv(a, b, alpha * (1 - _SLACK)), nan=0.0)
    certain = (hits == 0) | (alpha < _LEAST_LEVEL)
    return np.where(certain, 0.0, _confirm(bound, lambda p: scipy.special.betainc(a, b, p), alpha, 1 - _FIRST_MOVE))


def clopper_pearson_upper(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at most this.

    The bound is the (1 - alpha)-quantile of Beta(hits + 1, draws - hits), and 1 where every draw was hit or
    alpha is below 1e-220. The arguments are as in `clopper_pearson_lower`.

    >>> clopper_pearson_upper([0, 10], 100, 0.001).round(3)
    array([0.067, 0.225])
    """
    hits, draws, alpha = _check(hits, draws, alpha)
    a, b = hits + 1, np.maximum(draws - hits, 1)
    bound = np.nan_to_num(scipy.special.betainccinv(a, b, alpha * (1 - _SLACK)), nan=1.0)
    certain = (hits == draws) | (alpha < _LEAST_LEVEL)
    return np.where(certain, 1.0, _confirm(bound, lambda p: scipy.special.betaincc(a, b, p), alpha, 1 + _FIRST_MOVE))


def _confirm(start: ArrayLike, chance: Callable[[Floats], NDArray[np.floating]], alpha: Floats, move: float) -> Floats:
    """The bounds, each moved outwards in steps that double until its chance to fail is clearly below alpha."""
    bound = np.asarray(start, dtype=np.float64)
    wrong = ~(chance(bound) <= alpha * (1 - _SLACK / 2))
    while np.any(wrong):
        bound = np.where(wrong, np.clip(bound * move, 0.0, 1.0), bound)
        move = 1 + 2 * (move - 1)
        wrong = ~(chance(bound) <= alpha * (1 - _SLACK / 2)) & (bound < 1) & (bound > 0)
    return bound


def _check(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
    hits, draws, alpha = (np.asarray(values, dtype=np.float64) for values in (hits, draws, alpha))
    if not (np.all(draws >= 1) and np.all(draws <= _MOST_DRAWS) and np.all(draws == np.floor(draws))):
        raise InvalidInputError(f"draws must be whole numbers from 1 to {_MOST_DRAWS:,}, got {draws}")
    if not (np.all(hits >= 0) and np.all(hits <= draws) and np.all(hits == np.floor(hits))):
        raise InvalidInputError(
            "hits must be whole numbers between 0 and draws: a count of the wrong trials proves nothing"
        )
    if not np.all((alpha > 0) & (alpha < 1)):
        raise InvalidInputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    return hits, draws, alpha


class Bounds(Protocol):
    """Lower and upper bounds of an event's probability from its mass among `draws`, each failing with `level`."""

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """At most the probability of an event of at least this mass."""

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """At least the probability of an event of at most this mass."""


class ClopperPearson:
    """Masses are counts of independent draws; each bound holds with probability at least 1 - level."""

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The Clopper-Pearson lower bound."""
        return _each_once(clopper_pearson_lower, mass, draws, level)

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The Clopper-Pearson upper bound; a count of at most `mass` is at most its whole part."""
        return _each_once(clopper_pearson_upper, np.minimum(np.floor(mass), draws), draws, level)


class Exact:
    """Masses are sums of exact probabilities (draws = 1); nothing can fail and levels are not used.

    A sum of numbers that are not negative is right up to the fraction `error` of itself, with room. A bound is 1 only
    where the sum lacks less than the `least` probability there is, and so lacks nothing.
    """

    def __init__(self, probabilities: Floats) -> None:
        self.error = _SUM_ERROR * (len(probabilities) + 100)
        self.least = float(probabilities[probabilities > 0].min())

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """At most the probability, and at least 0."""
        everything = mass >= 1 - self.error if self.least > 4 * self.error else np.zeros(mass.shape, np.bool_)
        return np.where(everything, 1.0, np.clip(mass, 0.0, 1.0) * (1 - self.error))

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """At least the probability, and at most 1."""
        return np.clip(mass * (1 + self.error), 0.0, 1.0)


def _each_once(
    bound: Callable[[ArrayLike, ArrayLike, ArrayLike], Floats], mass: Floats, draws: Floats, level: Floats | float
) -> Floats:
    """The bounds, each different (mass, draws, level) computed once: votes are counts, so most of them recur."""
    (trials, trial), (levels, which) = _unique(draws), _unique(level)
    cases, case = _unique((np.asarray(mass).astype(np.int64) * len(trials) + trial) * len(levels) + which)
    count, rest = np.divmod(cases, len(trials) * len(levels))
    bounds: Floats = bound(count, trials[rest // len(levels)], levels[rest % len(levels)])[case]
    return bounds


def _unique(values: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different values, and for each entry the index of its value."""
    unique, index = np.unique(values, return_inverse=True)
    return unique, index.reshape(np.shape(values))
