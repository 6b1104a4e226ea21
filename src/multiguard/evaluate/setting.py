"""What is asked of the votes, and whether these votes can answer it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Literal

from multiguard.certify.arguments import checked_alpha, checked_setting, checked_threshold
from multiguard.errors import InvalidInputError, VotesError

if TYPE_CHECKING:
    from multiguard.votes import Provenance


@dataclass(frozen=True)
class Setting:
    """What one certificate of the top-k rule is about; its promise is for this choice, made without seeing votes.

    Attributes:
        k: How many labels the smoothed classifier returns.
        k_prime: How many labels the base classifier returns, k'.
        alpha: The error allowed for each image.
        draws: n, the first so many draws of each image; None for all of them, the only choice for adaptive votes.
    """

    k: int
    k_prime: int
    alpha: float = 0.001
    draws: int | None = None

    @property
    def rule(self) -> Literal["top-k"]:
        """The rule that it belongs to."""
        return "top-k"

    @property
    def n(self) -> int:
        """The number of draws, of a setting that names it; in an adaptive run the most that an image takes."""
        return _named(self.draws)


@dataclass(frozen=True)
class ThresholdSetting:
    """What one certificate of the threshold rule is about; its promise is for this choice, made without seeing votes.

    Attributes:
        threshold: t in (0, 1): the smoothed classifier returns the labels that a draw has with probability t or more.
        alpha: The error allowed for each image.
        draws: n, the first so many draws of each image; None for all of them, the only choice for adaptive votes.
    """

    threshold: float
    alpha: float = 0.001
    draws: int | None = None

    @property
    def rule(self) -> Literal["threshold"]:
        """The rule that it belongs to."""
        return "threshold"

    @property
    def n(self) -> int:
        """The number of draws, of a setting that names it; in an adaptive run the most that an image takes."""
        return _named(self.draws)


AnySetting = Setting | ThresholdSetting


def resolved(setting: AnySetting, run: Provenance) -> AnySetting:
    """The setting with its draws as a number, after everything it asks for has been found in the votes."""
    if setting.rule != run.rule:
        raise VotesError(_OTHER_RULE[run.rule])
    if isinstance(setting, ThresholdSetting):
        threshold, alpha = checked_threshold(setting.threshold), checked_alpha(setting.alpha)
        return ThresholdSetting(threshold, alpha, _draws(setting.draws, run))
    asked = checked_setting(setting.k, setting.k_prime, setting.alpha, len(run.label_names))
    if run.k_max is not None and asked.k_prime > run.k_max:
        raise InvalidInputError(
            f"k_prime = {asked.k_prime}, but these votes keep {run.k_max} labels of each draw (k_max); "
            f"ask for at most {run.k_max}, or vote again with a larger k_max"
        )
    return Setting(asked.k, asked.k_prime, asked.alpha, _draws(setting.draws, run))


_OTHER_RULE = {
    "threshold": "these are votes of the threshold rule, in which a draw has a set of labels, unranked, and no k': "
    "certify them with --rule threshold (a ThresholdSetting), or vote again with --rule top-k",
    "top-k": "these are votes of the top-k rule, in which a draw has its ranked labels but not which of them pass: "
    "certify them with --rule top-k, --k and --k-prime (a Setting), or vote again with --rule threshold",
}


def _draws(asked: int | None, run: Provenance) -> int:
    if run.looks is not None and asked is not None:
        raise InvalidInputError(
            f"n = {asked!r}, but these are adaptive votes: the votes themselves decided how many draws an image has, "
            "so that no fixed n holds; leave n (draws) out, and alpha is split over the looks of the run"
        )
    draws = run.draws if asked is None else asked
    if not (_is_whole(draws) and 1 <= draws <= run.draws):
        raise InvalidInputError(
            f"n = {draws!r}, but these votes hold {run.draws} draws of each image; "
            f"ask for 1 to {run.draws}, or vote again with more draws"
        )
    return int(draws)


def _named(draws: int | None) -> int:
    if draws is None:
        raise InvalidInputError("this setting takes all draws of its votes; how many that is, only they can tell")
    return draws


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
