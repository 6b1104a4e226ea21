"""Where the probabilities in a certificate come from: confidence bounds on draws, or the exact values."""

from typing import Protocol

import numpy as np

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
        return clopper_pearson_lower(mass, draws, level)

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The Clopper-Pearson upper bound; a count of at most `mass` is at most its whole part."""
        return clopper_pearson_upper(np.minimum(np.floor(mass), draws), draws, level)


class Exact:
    """Masses are the probabilities themselves (draws = 1); nothing can fail and levels are not used."""

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The probability itself."""
        return np.clip(mass, 0.0, draws)

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """The probability itself."""
        return np.clip(mass, 0.0, draws)
