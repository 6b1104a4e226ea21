"""Where the probabilities in a certificate come from: confidence bounds on draws, or the exact values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.types import Floats


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
