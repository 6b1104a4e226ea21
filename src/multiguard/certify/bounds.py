"""Bounds of the probability of an event: confidence bounds from draws, exact values, or a forecast of the former."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv

from multiguard.certify.arrays import Floats
from multiguard.errors import InvalidInputError

# SciPy's inverse of the incomplete beta function is mostly right to the last digit, but now and then it stops short, on
# the side that would claim too much. So a bound is sought for a little less than alpha, and what the distribution
# function itself does not confirm at half that distance is moved on until it does. Below levels of 1e-107 it may find
# nothing (NaN) where the bound is within 1e-29 of 0 or 1; the bound is then that end itself.
_SLACK = 1e-7
_FIRST_MOVE = 1e-12
_MOST_DRAWS = 10**8
# Below 1e-243 SciPy's distribution function may come out as 0 and would confirm anything; a bound at a
# level that comes near this is 0 or 1, which never fails.
_LEAST_LEVEL = 1e-220


def clopper_pearson_lower(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at least this.

    The bound is the alpha-quantile of Beta(hits, draws - hits + 1), and 0 where nothing was hit or where alpha is below
    1e-220, too small to be computed with.

    Args:
        hits: In how many draws the event was seen.
        draws: The number of independent draws.
        alpha: The probability that the bound may fail, in (0, 1).

    All three broadcast against each other; the result has their common shape.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    a, b = np.maximum(hits, 1), draws - hits + 1
    found = np.nan_to_num(betaincinv(a, b, alpha * (1 - _SLACK)), nan=0.0)
    certain = (hits == 0) | (alpha < _LEAST_LEVEL)
    return np.where(certain, 0.0, _confirmed(found, lambda p: betainc(a, b, p), alpha, 1 - _FIRST_MOVE))


def clopper_pearson_upper(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at most this.

    The bound is the (1 - alpha)-quantile of Beta(hits + 1, draws - hits), and 1 where every draw was hit or
    alpha is below 1e-220. The arguments are those of `clopper_pearson_lower`.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    a, b = hits + 1, np.maximum(draws - hits, 1)
    found = np.nan_to_num(betainccinv(a, b, alpha * (1 - _SLACK)), nan=1.0)
    certain = (hits == draws) | (alpha < _LEAST_LEVEL)
    return np.where(certain, 1.0, _confirmed(found, lambda p: betaincc(a, b, p), alpha, 1 + _FIRST_MOVE))


def _confirmed(
    found: ArrayLike, chance: Callable[[Floats], NDArray[np.floating]], alpha: Floats, move: float
) -> Floats:
    """The bounds, each moved outwards, in steps that double, until its chance to fail is clearly below alpha.

    Args:
        found: The bounds to start from, in [0, 1].
        chance: The probability, were the truth at the bound, of hits at least as extreme as those seen.
        alpha: What that probability may be.
        move: The first factor, just below 1 for lower bounds and just above it for upper ones.
    """
    bound = np.asarray(found, dtype=np.float64)
    wrong = ~(chance(bound) <= alpha * (1 - _SLACK / 2))
    while np.any(wrong):
        bound = np.where(wrong, np.clip(bound * move, 0.0, 1.0), bound)
        move = 1 + 2 * (move - 1)
        wrong = ~(chance(bound) <= alpha * (1 - _SLACK / 2)) & (bound < 1) & (bound > 0)
    return bound


def _checked(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
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
    """Masses are the probabilities themselves (draws = 1); nothing can fail and levels are not used."""

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The probability itself."""
        return np.clip(mass, 0.0, draws)

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The probability itself."""
        return np.clip(mass, 0.0, draws)


@dataclass(frozen=True)
class Projected:
    """What the bounds would be after `draws` draws in all, were the draws to come kind: a forecast, never a proof.

    In the draws to come, an event that helps the certificate is taken to happen `forecast_margin` standard deviations
    more often than so far, and one that hurts it as much less often. The standard deviation is that of a forecast: of
    the draws to come and of the frequency seen so far. With an infinite margin every draw to come is the best possible
    one, and no future votes can have better bounds.
    """

    draws: float
    forecast_margin: float

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The lower bound that is hoped for."""
        hoped = np.floor(mass + self._to_come(mass, draws, self.forecast_margin))
        return ClopperPearson().lower(hoped, np.asarray(self.draws), level)

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The upper bound that is hoped for."""
        seen = np.minimum(mass, draws)
        return ClopperPearson().upper(
            seen + self._to_come(seen, draws, -self.forecast_margin), np.asarray(self.draws), level
        )

    def _to_come(self, mass: Floats, draws: Floats, deviations: float) -> Floats:
        left = self.draws - draws
        chance = (mass + 1) / (draws + 2)
        spread = np.sqrt(left * chance * (1 - chance) * (1 + left / draws))
        to_come: Floats = np.clip(left * mass / draws + deviations * spread, 0.0, left)
        return to_come


def _each_once(
    bound: Callable[[ArrayLike, ArrayLike, ArrayLike], Floats], mass: Floats, draws: Floats, level: Floats | float
) -> Floats:
    """The bounds, each different (mass, draws, level) computed once: votes are counts, so most of them recur."""
    trials, trial = _kinds(draws)
    chances, chance = _kinds(level)
    counts = np.asarray(mass).astype(np.int64)
    cases, case = _kinds_of_whole((counts * len(trials) + trial) * len(chances) + chance)
    count, rest = np.divmod(cases, len(trials) * len(chances))
    each = bound(count, trials[rest // len(chances)], chances[rest % len(chances)])
    found: Floats = each[case]
    return found


def _kinds_of_whole(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """As `_kinds`, by a table instead of a sort where the table is not larger than the values."""
    if values.size == 0 or values.max() > values.size:
        return _kinds(values)
    seen = np.zeros(int(values.max()) + 1, dtype=np.bool_)
    seen[values] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


def _kinds(values: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different values, and for each entry which of them it is."""
    kinds, kind = np.unique(values, return_inverse=True)
    return kinds, kind.reshape(np.shape(values))
