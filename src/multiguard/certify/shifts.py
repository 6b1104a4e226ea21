"""The two ways in which noise lets a perturbation move probabilities.

An event of probability q has at least `down(q)` and at most `up(q)` at the perturbed image. Gaussian noise moves the
score Phi^-1(q) by at most r = R / sigma. Every other noise here moves q itself by at most r = D, the total variation
that the attacker can cause. All certificates are written in scores and r, and so serve both.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from multiguard.certify.arrays import Floats


@dataclass(frozen=True)
class GaussianShift:
    """Scores are Phi^-1(q), and `down` is Phi(score - r).

    Attributes:
        beyond: What holds at this r holds for every one: no finite scores of doubles differ by as much.
        furthest: The largest r at which the law of a bet is taken to break.
        spread: About how uncertain such an r is, times the square root of the draws so far.
    """

    beyond: ClassVar[float] = 80.0
    furthest: ClassVar[float] = 6.4
    spread: ClassVar[float] = 8.0

    def scores(self, q: Floats, rest: Floats | None = None) -> Floats:
        """The scores of probabilities; rest: 1 - q, where it is known to more digits."""
        scores: Floats = ndtri(q)
        return scores if rest is None else np.where(q > 0.5, -ndtri(np.minimum(rest, 1.0)), scores)

    def moved(self, scores: Floats, r: Floats | float) -> Floats:
        """The probabilities after every score has moved by r, down where r is negative."""
        probabilities: Floats = ndtr(scores + r)
        return probabilities

    def kept(self, scores: Floats) -> Floats:
        """Scores for bets: beyond 5 they have slopes so large or small that they only lose digits."""
        return np.clip(scores, -5.0, 5.0)

    def slopes(self, scores: Floats, r: Floats) -> Floats:
        """The slopes of `down` at these scores."""
        slopes: Floats = np.exp(scores * r - r**2 / 2)
        return slopes

    def intercepts(self, slopes: Floats, scores: Floats, r: Floats) -> Floats:
        """What slope q - intercept needs so that this line lies below `down`, for the slopes at these scores."""
        intercepts: Floats = slopes * ndtr(scores) - ndtr(scores - r)
        return intercepts


@dataclass(frozen=True)
class ProbabilityShift:
    """Scores are probabilities, and `down` is max(0, score - r); the attributes are those of `GaussianShift`."""

    beyond: ClassVar[float] = 1.0
    furthest: ClassVar[float] = 1.0
    spread: ClassVar[float] = 2.0

    def scores(self, q: Floats, rest: Floats | None = None) -> Floats:
        """The probabilities themselves."""
        return np.minimum(q, 1.0)

    def moved(self, scores: Floats, r: Floats | float) -> Floats:
        """The probabilities after all have moved by r, kept in [0, 1]."""
        return np.clip(scores + r, 0.0, 1.0)

    def kept(self, scores: Floats) -> Floats:
        """Scores for bets: a law that was moved keeps within [0, 1]."""
        return np.clip(scores, 0.0, 1.0)

    def slopes(self, scores: Floats, r: Floats) -> Floats:
        """The slopes of `down` at these scores; at the kink, where any from 0 to 1 would do, 0."""
        return np.asarray(scores > r, dtype=np.float64)

    def intercepts(self, slopes: Floats, scores: Floats, r: Floats) -> Floats:
        """The same for any slopes from 0 to 1: slope (q - r) is at most max(0, q - r)."""
        return slopes * r


Shift = GaussianShift | ProbabilityShift
GAUSSIAN_SHIFT, PROBABILITY_SHIFT = GaussianShift(), ProbabilityShift()
