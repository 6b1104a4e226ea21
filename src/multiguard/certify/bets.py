"""Bets on one draw whose mean payoff is at most 1 while a pair (U, V) is broken at r.

A draw that hits a labels of S and b labels of T is worth W: H_S/u - H_T/v for the top-k rule, H_S/u - t for a floor of
the threshold rule, t - H_T/v for a ceiling. Where the pair is broken, W has mean at most 0 at x + delta. Let its values
be w_0 < w_1 < ... For any lines slope_l q - intercept_l below `down`, the slopes not rising,

    h(w_l) = sum_{i<=l} (w_i - w_{i-1}) slope_i,    b0 = sum_l (w_l - w_{l-1}) intercept_l - w_0

have E[h(W)] <= b0 at x, so that 1 + stake (h(W) - b0) has mean at most 1. `docs/theory.md` has the proof.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from multiguard.certify.arguments import Floats, Ints
from multiguard.certify.layers import GAUSSIAN_SHIFT, Shift

_STEPS = 12
# b0 is raised by this fraction of the largest numbers it is made of, and no bet pays less than _LEAST_PAYOFF.
_ROUNDING = 1e-12
_LEAST_PAYOFF = 1e-4
_NEWTON_STEPS, _TINY = 4, 1e-30


@dataclass(frozen=True)
class Claim:
    """What breaks a claim: `out` labels of L are out, `into` others are in; `needed` is the log K to reach."""

    out: int
    into: int
    needed: float


@dataclass(frozen=True)
class Game:
    """The values of W, each times a positive whole number: u v W (top-k), u W (floor) or v W (ceiling).

    A draw can hit `most_in` labels of S, `most_out` of T and `most_hits` of all; `threshold` is t, None for top-k.
    """

    most_in: int
    most_out: int
    most_hits: int
    threshold: float | None = None
    shift: Shift = GAUSSIAN_SHIFT

    @cache  # noqa: B019 (a game is a value, and there are few)
    def cells(self) -> tuple[Ints, Ints]:
        """(cells,) and (cells,) the labels of S and of T that a draw hits, all that is possible."""
        a, b = np.divmod(np.arange((self.most_in + 1) * (self.most_out + 1)), self.most_out + 1)
        possible = a + b <= self.most_hits
        return a[possible], b[possible]

    @property
    def slots(self) -> int:
        """The size of a table of a by b."""
        return (self.most_in + 1) * (self.most_out + 1)

    def worth(self, u: int, v: int) -> Floats:
        """(cells,) the value of each cell; one with more hits than S or T has labels counts as all of them."""
        a, b = self.cells()
        hits_in, hits_out = np.minimum(a, u), np.minimum(b, v)
        if self.threshold is None:
            return np.asarray(hits_in * v - hits_out * u, dtype=np.float64)
        return hits_in - u * self.threshold if self.most_in else v * self.threshold - hits_out


@dataclass(frozen=True, eq=False)
class Ladders:
    """The values of W in rising order for some (u, v), one row each: `order` has the cells from the least W up.

    `gaps` leads from each value to the next, 0 between equal ones; `possible` says whether S and T are large enough.
    """

    order: Ints
    gaps: Floats
    least: Floats
    possible: Floats

    @staticmethod
    def joined(every: "Iterable[Ladders]") -> "Ladders":
        """The rows of all."""
        return Ladders(*map(np.concatenate, zip(*(vars(each).values() for each in every), strict=True)))


@cache
def ladders(game: Game, us: tuple[int, ...], vs: tuple[int, ...]) -> Ladders:
    """A row for each u and v, u the slower index."""
    a, b = game.cells()
    worth = np.array([game.worth(u, v) for u in us for v in vs])
    possible = np.array([(a <= u) & (b <= v) for u in us for v in vs], dtype=np.float64)
    order = np.argsort(worth, axis=1, kind="stable")
    rising = np.take_along_axis(worth, order, axis=1)
    return Ladders(order, np.diff(rising, axis=1), rising[:, 0], np.take_along_axis(possible, order, axis=1))


def smoothed(counts: Floats, possible: Floats, unseen: float | Floats) -> Floats:
    """(rows, cells) the law of these counts and of `unseen` draws, half at the least W and half spread."""
    law = counts + unseen / 2 * possible / possible.sum(axis=1, keepdims=True)
    law[:, :1] += unseen / 2
    normalised: Floats = law / law.sum(axis=1, keepdims=True)
    return normalised


def scores_of(law: Floats, shift: Shift) -> Floats:
    """The score of the probability of each value or more, but the least; law: (rows, cells) along a ladder."""
    return shift.scores(np.clip(np.cumsum(law[:, :0:-1], axis=1)[:, ::-1], 0.0, 1.0))


def law_of(scores: Floats, shift: Shift) -> Floats:
    """(rows, cells) the law along a ladder that has these scores, or the running minimum of them."""
    tails = np.zeros((len(scores), scores.shape[1] + 2))
    tails[:, 0] = 1.0
    tails[:, 1:-1] = shift.moved(np.minimum.accumulate(shift.kept(scores), axis=1), 0.0)
    law: Floats = tails[:, :-1] - tails[:, 1:]
    return law


def breaking(scores: Floats, gaps: Floats, least: Floats, shift: Shift) -> Floats:
    """(rows,) about the r up to which C > 0 for a law with these scores; 0 where there is none."""
    low, high = np.zeros(len(scores)), np.full(len(scores), shift.furthest)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        kept = least + np.vecdot(gaps, shift.moved(scores, -middle[:, None])) > 0
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return low


def payoffs(scores: Floats, gaps: Floats, least: Floats, r: Floats, shift: Shift) -> Floats:
    """(rows, cells) h(W) - b0 along the ladder, b0 rounded up: its mean at x is at most 0 while the pair is broken."""
    z = np.minimum.accumulate(shift.kept(scores), axis=1)
    r = r[:, None]
    slopes = np.minimum.accumulate(shift.slopes(z, r), axis=1)
    b0 = np.vecdot(gaps, shift.intercepts(slopes, z, r)) - least
    b0 += _ROUNDING * (np.vecdot(gaps, slopes + 1) - least)
    x = np.zeros((len(gaps), gaps.shape[1] + 1))
    np.cumsum(gaps * slopes, axis=1, out=x[:, 1:])
    x -= b0[:, None]
    return x


def most_growth(ladder: Ladders, radii: Floats, shift: Shift) -> Floats:
    """(radii,) more than this no bet on the ladder can add to log K in a draw.

    Let W be largest with probability q at x + delta, least otherwise, with mean 0: the pair is broken, and at x the
    largest W may have probability up(q). So its payoff, which no other exceeds, is at most 1 / up(q).
    """
    q = np.min(-ladder.least / ladder.gaps.sum(axis=1))
    return -np.log(np.maximum(shift.moved(shift.scores(q), radii), _TINY))


def stakes(law: Floats, x: Floats, rate: Floats) -> Floats:
    """(rows,) the stakes whose best law makes log K grow by `rate` per draw; 0 where nothing has to grow.

    Where x has mean 0 under `law`, a stake is best for draws of (1 + stake x) law, and log K then grows by the mean of
    g log g - g + 1. Newton's steps are for the root of twice that, which is nearly linear.
    """
    most = (1 - _LEAST_PAYOFF) / -x[:, 0]
    target = np.sqrt(2 * np.maximum(rate, 0.0))
    weighed = law * x
    mean = weighed.sum(axis=1)
    stake = np.minimum(target / np.sqrt(np.vecdot(weighed, x)), most)
    for _ in range(_NEWTON_STEPS):
        log_g = np.log1p(stake[:, None] * x)
        rise = np.vecdot(weighed, log_g)
        growth = np.sqrt(2 * np.maximum(np.vecdot(law, log_g) + stake * (rise - mean), _TINY))
        slope = np.maximum(rise / growth, _TINY)
        stake = np.minimum(np.maximum(stake + (target - growth) / slope, 0.0), most)
    return np.where(target > 0, stake, 0.0)


def kelly_stakes(law: Floats, x: Floats) -> Floats:
    """(rows,) the stakes with the fastest growth of log K for draws of this law, 0 where there is none."""
    low, high = np.zeros(len(x)), (1 - _LEAST_PAYOFF) / -x[:, 0]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        rising = np.vecdot(law, x / (1 + middle[:, None] * x)) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return low
