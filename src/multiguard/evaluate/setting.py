"""What is asked of the votes, and whether these votes can answer it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

from multiguard.certify.arguments import checked_setting
from multiguard.errors import InvalidInputError, VotesError

if TYPE_CHECKING:
    from multiguard.votes import Provenance


@dataclass(frozen=True)
class Setting:
    """What one certificate is about; its promise holds for this choice, made without looking at the votes.

    Attributes:
        k: How many labels the smoothed classifier returns.
        k_prime: How many labels the base classifier returns, k'.
        alpha: The error allowed for each picture.
        draws: n, the first so many draws of each picture; None for all of them.
    """

    k: int
    k_prime: int
    alpha: float = 0.001
    draws: int | None = None

    @property
    def n(self) -> int:
        """The number of draws, of a setting that names it."""
        if self.draws is None:
            raise InvalidInputError("this setting takes all draws of its votes; how many that is, only they can tell")
        return self.draws


def resolved(setting: Setting, provenance: Provenance) -> Setting:
    """The setting with its draws as a number, after everything it asks for has been found in the votes."""
    asked = checked_setting(setting.k, setting.k_prime, setting.alpha, len(provenance.label_names))
    if provenance.k_max is None:
        raise VotesError("these are votes of the threshold rule, which has no k and no k'; certify them as such")
    if asked.k_prime > provenance.k_max:
        raise InvalidInputError(
            f"k_prime = {asked.k_prime}, but these votes keep {provenance.k_max} labels of each draw (k_max); "
            f"ask for at most {provenance.k_max}, or vote again with a larger k_max"
        )
    draws = provenance.draws if setting.draws is None else setting.draws
    if not (_is_whole(draws) and 1 <= draws <= provenance.draws):
        raise InvalidInputError(
            f"n = {draws!r}, but these votes hold {provenance.draws} draws of each picture; "
            f"ask for 1 to {provenance.draws}, or vote again with more draws"
        )
    return Setting(asked.k, asked.k_prime, asked.alpha, int(draws))


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
