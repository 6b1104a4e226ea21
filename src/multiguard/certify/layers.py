"""Sums of moved probabilities, the two sides of every certificate, and where they cross.

An event that has probability q at the image x has at least `down(q)` and at most `up(q)` at every x + delta that the
attacker can make. Gaussian noise moves the score Phi^-1(q) by at most r = R / sigma. Every other noise here moves q
itself by at most r = D, the total variation that the attacker can cause. All certificates are written in scores and
r, and so serve both. Each side of one is a maximum or minimum over *terms*, each a weighted sum of such *layers*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from multiguard.certify.arguments import Bools, Floats


class GaussianShift:
    """Scores are Phi^-1(q), and `down` is Phi(score - r).

    What holds at r = `beyond` holds for every r of doubles. A law of bets breaks at `furthest` at most, and that r is
    uncertain by about `spread` over the square root of the draws so far.
    """

    beyond: ClassVar[float] = 80.0
    furthest: ClassVar[float] = 6.4
    spread: ClassVar[float] = 8.0

    def scores(self, q: Floats) -> Floats:
        """The scores of probabilities."""
        scores: Floats = scipy.special.ndtri(q)
        return scores

    def moved(self, scores: Floats, r: Floats | float) -> Floats:
        """The probabilities after every score has moved by r, down where r is negative."""
        probabilities: Floats = scipy.special.ndtr(scores + r)
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
        intercepts: Floats = slopes * scipy.special.ndtr(scores) - scipy.special.ndtr(scores - r)
        return intercepts


class ProbabilityShift:
    """Scores are probabilities, and `down` is max(0, score - r); the attributes are as in `GaussianShift`."""

    beyond: ClassVar[float] = 1.0
    furthest: ClassVar[float] = 1.0
    spread: ClassVar[float] = 2.0

    def scores(self, q: Floats) -> Floats:
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

# The bracket of r shrinks to 2**-_STEPS of itself, 1e-10 at most.
_STEPS = 40
# The left side must exceed the right by this fraction: 25 times the largest error of Phi(Phi^-1(q) + r) that was found.
_MARGIN = 1e-11
# Splits a double into two of 26 bits, whose products are exact; below _LEAST_NORMAL doubles have fewer bits.
_SPLIT = 2.0**27 + 1
_LEAST_NORMAL = 2.0**-1021


@dataclass(frozen=True, eq=False)
class Layers:
    """Terms of layers: a term is its weight, (rows or 1, terms), times the sum of its moved probabilities.

    `scores`, (layers, rows, terms), are -inf for a layer that is absent; one of probability 0 counts: up(0) may be > 0.
    """

    scores: Floats
    weights: Floats
    shift: Shift

    @staticmethod
    def of(probabilities: Floats, weights: Floats, shift: Shift, present: Bools | None = None) -> "Layers":
        """Layers of (rows, terms, layers) probabilities, weighted alike in every row; present: (terms, layers)."""
        scores = shift.scores(np.ascontiguousarray(np.moveaxis(probabilities, -1, 0)))
        if present is not None:
            scores = np.where(present.T[:, None, :], scores, -np.inf)
        return Layers(scores, weights[None, :], shift)

    @staticmethod
    def stack(blocks: Sequence["Layers"], absent: float) -> "Layers":
        """All rows of several blocks; a term that a block lacks gets the weight `absent`, 0 or infinity."""
        layers, terms = (max(block.scores.shape[axis] for block in blocks) for axis in (0, 2))
        rows = sum(block.rows for block in blocks)
        scores, weights = np.full((layers, rows, terms), -np.inf), np.full((rows, terms), absent)
        start = 0
        for block in blocks:
            own_layers, _, own_terms = block.scores.shape
            scores[:own_layers, start : start + block.rows, :own_terms] = block.scores
            weights[start : start + block.rows, :own_terms] = block.weights
            start += block.rows
        if absent:
            scores[0][weights == absent] = 0.5
        return Layers(scores, weights, blocks[0].shift)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.scores.shape[1])

    def moved(self, r: Floats) -> Floats:
        """The terms, (rows, terms), after every score of a row has moved by that row's r."""
        sums: Floats = self.shift.moved(self.scores, r[:, None]).sum(axis=0)
        return self.weights * sums


def crossing(left: Callable[[Floats], Floats], right: Callable[[Floats], Floats], rows: int, shift: Shift) -> Floats:
    """For each row an r at which left(r) > right(r) was evaluated and found true, so it holds for all smaller r.

    `left` must not rise and `right` must not fall in r. It is the lower end of the last bracket of a bisection: -inf
    where left(0) > right(0) fails already, +inf where no r breaks it.
    """

    def holds(r: Floats) -> Bools:
        return left(r) * (1 - _MARGIN) > right(r)

    low, high = np.zeros(rows), np.full(rows, shift.beyond)
    at_zero, always = holds(low), holds(high)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        proved = holds(middle)
        low, high = np.where(proved, middle, low), np.where(proved, high, middle)
    return np.where(at_zero, np.where(always, np.inf, low), -np.inf)


def fill(caps: Floats, total: Floats) -> Floats:
    """The most equal layers t_l = min(cap_l, w), (..., layers), with the given total, or all caps if they hold less.

    `up` is concave, so of all layers below `caps` with this sum these have the largest sum of up, at every r.
    """
    count = caps.shape[-1]
    ascending = np.sort(caps, axis=-1)
    full = np.cumsum(ascending, axis=-1) - ascending
    total = np.minimum(total, caps.sum(axis=-1))
    # With the i smallest caps full, the others divide the rest; sum_l min(cap_l, w) is the least of these lines in w.
    equal_parts = (total[..., None] - full) / np.arange(count, 0, -1)
    level: Floats = equal_parts.max(axis=-1, keepdims=True)
    return np.minimum(caps, level)


def scale_radii(r: Floats, sigma: float) -> Floats:
    """Sigma r, rounded down where it is not exact."""
    product, inexact = r * sigma, (r > 0) & np.isfinite(r)
    inexact[inexact] = _rounded_up(r[inexact], sigma)
    return np.where(inexact, np.nextafter(product, 0.0), product)


def _rounded_up(r: Floats, sigma: float) -> Bools:
    """Whether sigma r as computed may be above its exact value; Dekker's product of the mantissas tells."""
    a, b = np.frexp(r)[0], np.frexp(sigma)[0]
    high_a, high_b = (_SPLIT * each - (_SPLIT * each - each) for each in (a, b))
    low_a, low_b = a - high_a, b - high_b
    error = high_a * high_b - a * b + high_a * low_b + low_a * high_b + low_a * low_b
    exact_or_below: Bools = (error >= 0) & (r * sigma >= _LEAST_NORMAL) & np.isfinite(r * sigma)
    return ~exact_or_below
