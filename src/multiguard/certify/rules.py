"""The two rules, top-k and threshold, as adaptive draws see them: tallies of the votes, and radii in one row.

A row holds every radius that is claimed of an image, whatever it is about: more is better for each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import check_count, checked_method, checked_setting, checked_sigma
from multiguard.certify.bounds import Bounds
from multiguard.certify.group import Setting
from multiguard.certify.radii import ranked_tally, solved_ranked
from multiguard.certify.tally import Tally
from multiguard.certify.threshold import (
    SetTally,
    ThresholdSetting,
    checked_threshold_setting,
    set_tally,
    solved_sets,
)
from multiguard.certify.types import Floats, Method, ThresholdMethod

Tallied = TypeVar("Tallied")


class Rule(Protocol, Generic[Tallied]):
    """What a set of votes is, and what it proves with a share of alpha."""

    def only_at(self, radii: Floats) -> "Rule[Tallied]":
        """The same rule where only these radii matter: much faster, and right about which of them are proved."""

    def tally(self, votes: ArrayLike, labels: ArrayLike) -> Tallied:
        """The tally of one image's votes."""

    def solve(self, tallies: Sequence[Tallied], share: float, bounds: Bounds) -> list[Floats]:
        """Every radius that is proved of each image, with this share of alpha."""


@dataclass(frozen=True)
class TopK:
    """Ranked votes; a row is the radii of sizes 1, 2, ..."""

    setting: Setting
    num_labels: int
    sigma: float
    method: Method

    @staticmethod
    def checked(num_labels: int, k: int, k_prime: int, sigma: float, alpha: float, method: str) -> "TopK":
        """The rule, each argument within its range."""
        setting = checked_setting(k, k_prime, alpha, num_labels)
        return TopK(setting, num_labels, checked_sigma(sigma), checked_method(method))

    def only_at(self, radii: Floats) -> "TopK":
        """The same rule where only these radii matter."""
        return replace(self, setting=replace(self.setting, at=_just_beyond(radii, self.sigma)))

    def tally(self, votes: ArrayLike, labels: ArrayLike) -> Tally:
        """The tally of one image's ranked votes."""
        return ranked_tally(votes, labels, self.setting.k_prime, self.num_labels)

    def solve(self, tallies: Sequence[Tally], share: float, bounds: Bounds) -> list[Floats]:
        """The radii of each image."""
        setting = replace(self.setting, alpha=self.setting.alpha * share)
        return solved_ranked(tallies, setting, self.sigma, self.method, bounds)


@dataclass(frozen=True)
class Threshold:
    """Votes that are sets; a row is the radii of the floors, then those of the ceilings."""

    setting: ThresholdSetting
    num_labels: int
    sigma: float

    @staticmethod
    def checked(num_labels: int, threshold: float, sigma: float, alpha: float, method: ThresholdMethod) -> "Threshold":
        """The rule, each argument within its range."""
        check_count("num_labels", num_labels, None)
        return Threshold(checked_threshold_setting(threshold, alpha, method), num_labels, checked_sigma(sigma))

    def only_at(self, radii: Floats) -> "Threshold":
        """The same rule where only these radii matter."""
        return replace(self, setting=replace(self.setting, at=_just_beyond(radii, self.sigma)))

    def tally(self, votes: ArrayLike, labels: ArrayLike) -> SetTally:
        """The tally of one image's sets."""
        return set_tally(votes, labels, self.num_labels)

    def solve(self, tallies: Sequence[SetTally], share: float, bounds: Bounds) -> list[Floats]:
        """The radii of each image, floors before ceilings."""
        setting = replace(self.setting, alpha=self.setting.alpha * share)
        solved = solved_sets(tallies, setting, self.sigma, bounds)
        return [np.concatenate([radii.true, radii.false]) for radii in solved]


def _just_beyond(radii: Floats, sigma: float) -> tuple[float, ...]:
    """The radii in units of sigma, so little larger that they are not below the radii when scaled and rounded down."""
    return tuple(float(r) for r in radii / sigma * (1 + 1e-12))
