"""The betting certificate with exact probabilities: what infinitely many draws would prove.

A pair (U, V) is refuted at r if some S in U and T in V have C > 0, where

    C = w_0 + sum_l (w_l - w_{l-1}) down(Pr(W >= w_l)),    W = H_S/u - H_T/v

is a lower bound of the mean of W at x + delta; for `Threshold` W = H_S/u - t, and W = t - H_T/v.

For `TopK` under Gaussian noise the labels of U and of V may also have unequal weights, which sum to 1 on each side. The
largest C over all weights decides: where it is not above 0, some classifier with the same probabilities is broken.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.special import ndtri

from multiguard.certify.arguments import Bools, Floats, Ints
from multiguard.certify.bets import Game, ladders
from multiguard.certify.draws import Draws, read_draws
from multiguard.certify.joint import best_within
from multiguard.certify.layers import GAUSSIAN_SHIFT, Shift, crossing
from multiguard.certify.noise import SampledNoise
from multiguard.certify.radii import Radii
from multiguard.certify.rules import Rule, TopK

# Every subset of L is tried up to this number of labels, beyond it single labels.
_MOST_TRUE = 10
# Every subset of the likeliest labels outside L is tried, this many together with the labels of L; the others alone.
_MOST_LABELS = 14
# The mean must exceed 0 by this fraction of its positive part, so that rounding breaks no tie.
_MARGIN = 1e-11
# Weights are sought up to this multiple of the r of equal ones, in this many steps, for this many pairs at most.
_FURTHER, _STEPS, _MOST_PAIRS = 2.0, 16, 64
# The most tries for a pair; the mean must exceed 0 by this.
_TRIES, _LEAST_MEAN = 60, 1e-9


def law_radii(
    vote_sets: ArrayLike, probabilities: ArrayLike, labels: ArrayLike, rule: Rule, noise: SampledNoise
) -> Radii:
    """What bets prove with infinitely many draws: the arguments are as in `exact_radii`."""
    sets = np.asarray(vote_sets)
    weights = np.asarray(probabilities, np.float64) / np.sum(probabilities)
    true, false = _coupled(read_draws(sets, labels, rule, sets.shape[1]), weights, rule, noise.shift)
    return Radii(noise.radii(true), None if false is None else noise.radii(false))


def _coupled(draws: Draws, chances: Floats, rule: Rule, shift: Shift) -> tuple[Floats, Floats | None]:
    """As `betting_radii`, each row of `draws` with its chance in place of being a draw; every r counts."""
    d, rivals = draws.num_true, draws.rivals
    if isinstance(rule, TopK):
        sizes = min(d, rule.k)
        certain = min(sizes, max(0, rule.k - rivals))
        pairs = [(d - e + 1, rule.k - e + 1) for e in range(certain + 1, sizes + 1)]
        r = _Means(draws, chances, Game(min(d, rule.k_prime), rule.k_prime, rule.k_prime, shift=shift)).radii(pairs)
        return np.minimum.accumulate(np.concatenate([np.full(certain, np.inf), r])), None
    floors = _Means(draws, chances, Game(d, 0, d, rule.t, shift)).radii([(d - e, 0) for e in range(d)])
    out = _Means(draws, chances, Game(0, rivals, rivals, rule.t, shift))
    ceilings = out.radii([(0, m + 1) for m in range(rivals)])
    return np.minimum.accumulate(floors), np.maximum.accumulate(ceilings)


class _Means:
    """C of every S and T that is tried, as a function of r."""

    def __init__(self, draws: Draws, chances: Floats, game: Game) -> None:
        hits_in = draws.patterns[draws.pattern] if game.most_in else np.zeros((draws.count, 0), dtype=np.bool_)
        hits_out = np.zeros((draws.count, draws.rivals if game.most_out else 0), dtype=np.bool_)
        if game.most_out:
            hits_out[draws.draw, draws.rival] = True
        d = hits_in.shape[1]
        self.chances, self.hits_in, self.hits_out = chances, hits_in.astype(np.float64), hits_out.astype(np.float64)
        self.order_in, order_out = np.argsort(-chances @ hits_in), np.argsort(-chances @ hits_out)
        self.all_in = d <= _MOST_TRUE
        self.together = min(len(order_out), _MOST_LABELS - min(d, _MOST_TRUE // 2))
        subsets = _subsets(np.arange(d)) if self.all_in else np.eye(d, dtype=np.int64)
        alone = np.eye(len(order_out), dtype=np.int64)[order_out[self.together :]]
        rivals = np.concatenate([_subsets(order_out[: self.together], len(order_out)), alone])
        self.subsets, self.rivals = subsets, rivals
        self.us, self.vs = subsets.sum(axis=1), rivals.sum(axis=1)
        widths = tuple(range(int(self.us.max()) + 1)), tuple(range(int(self.vs.max()) + 1))
        ladder = ladders(game, *widths)
        self.row = self.us[:, None] * len(widths[1]) + self.vs
        laws = _laws(hits_in @ subsets.T, hits_out @ rivals.T, chances, game)
        self.shift = game.shift
        self.may_weigh = game.threshold is None and self.all_in and game.shift is GAUSSIAN_SHIFT
        self.scores = self._scores(np.take_along_axis(laws, ladder.order[self.row.ravel()], axis=1))
        self.gaps, self.least = ladder.gaps[self.row.ravel()], ladder.least[self.row.ravel()]

    def radii(self, pairs: Sequence[tuple[int, int]]) -> Floats:
        """(claims,) up to which r every pair of these |U|, |V| is refuted."""
        if not pairs:
            return np.empty(0)

        def weakest(r: Floats) -> Floats:
            return np.array([self._weakest(float(at), *pair) for at, pair in zip(r, pairs, strict=True)])

        equal = crossing(weakest, lambda r: np.zeros(len(r)), len(pairs), self.shift)
        return np.array([self._weighed(float(r), *pair) for r, pair in zip(equal, pairs, strict=True)])

    def _weakest(self, r: float, out: int, into: int) -> float:
        """The least over U and V of the largest C over S in U and T in V."""
        among, alone = self._largest(r, out, into)
        return float(min(among.min(initial=np.inf), alone.min(initial=np.inf)))

    def _largest(self, r: float, out: int, into: int) -> tuple[Floats, Floats]:
        """The largest C over S in U and T in V: (U, V) for V among the likeliest labels, (U, labels) for any other."""
        kept = np.einsum("ij,ij->i", self.gaps, self.shift.moved(self.scores, -r))
        means = (self.least + (1 - _MARGIN) * kept).reshape(self.row.shape)
        means[(self.us == 0) & (out > 0)] = -np.inf
        means[:, (self.vs == 0) & (into > 0)] = -np.inf
        within = self._within_u(means, out)
        sets = best_within(np.ascontiguousarray(within[:, : 1 << self.together]), np.maximum)
        return sets[:, np.bitwise_count(np.arange(1 << self.together)) == into], within[:, 1 << self.together :]

    def _weighed(self, r: float, out: int, into: int) -> float:
        """The r up to which every pair is refuted if labels may have weights; `r` is that of equal ones."""
        if not self.may_weigh or not 0 < r < np.inf or out * into == 1:
            return r
        low, high = r, _FURTHER * r
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._all_refuted(middle, out, into) else (low, middle)
        return low

    def _all_refuted(self, r: float, out: int, into: int) -> bool:
        """Whether some weights refute each pair; False as well if too many pairs need them."""
        among, alone = self._largest(r, out, into)
        left = np.argwhere(among <= 0)
        if len(left) > _MOST_PAIRS or alone.min(initial=np.inf) <= 0:
            return False
        sets_u = self.subsets[self.us == out]
        sets_v = self.rivals[: 1 << self.together][np.bitwise_count(np.arange(1 << self.together)) == into]
        return all(self._refuted(r, sets_u[u] > 0, sets_v[v] > 0) for u, v in left.tolist())

    def _refuted(self, r: float, in_u: Bools, in_v: Bools) -> bool:
        """Whether some weights have C > 0, sought by cutting planes: C is concave in them.

        For given weights C is the mean of W under the worst law at x + delta. Under that law the mean is linear in the
        weights, and no weights have a larger C than that.
        """
        hits = np.hstack([self.hits_in[:, in_u], -self.hits_out[:, in_v]])
        sides = np.repeat(np.eye(2), [in_u.sum(), in_v.sum()], axis=1)
        weights, worst = sides.sum(axis=0) / (sides.sum(axis=1) @ sides), []
        for _ in range(_TRIES):
            worth = hits @ weights
            order = np.argsort(worth)
            below = np.append(np.minimum(np.cumsum(self.chances[order])[:-1], 1.0), 1.0)
            law = np.diff(self.shift.moved(self.shift.scores(below), r), prepend=0.0)
            if law @ worth[order] > _LEAST_MEAN:
                return True
            worst.append(np.append(-(law @ hits[order]), 1.0))
            cost = np.append(np.zeros(len(weights)), -1.0)
            found = linprog(
                cost, np.array(worst), np.zeros(len(worst)), np.hstack([sides, np.zeros((2, 1))]), [1, 1], bounds=(0, 1)
            )
            if found.x is None or found.x[-1] <= _LEAST_MEAN:  # so no weights have more
                return False
            weights = np.maximum(found.x[:-1], 0.0)
            weights /= (sides @ weights) @ sides
        return False

    def _scores(self, laws: Floats) -> Floats:
        """As `scores_of`, with the digits of tails near 1 too."""
        above, below = np.cumsum(laws[:, :0:-1], axis=1)[:, ::-1], np.cumsum(laws[:, :-1], axis=1)
        scores = self.shift.scores(np.minimum(above, 1.0))
        if self.shift is not GAUSSIAN_SHIFT:
            return scores
        return np.where(above > 0.5, -ndtri(np.minimum(below, 1.0)), scores)

    def _within_u(self, means: Floats, out: int) -> Floats:
        """(sets U, T) the largest mean over S in U; for many labels single ones of which every U has one."""
        if not self.all_in:
            return means[self.order_in[: len(self.order_in) - out + 1]]
        return best_within(np.ascontiguousarray(means.T), np.maximum)[:, self.us == out].T


def _subsets(labels: Ints, width: int | None = None) -> Ints:
    """(2^labels, width) every subset of these labels; bit i of the index stands for labels[i]."""
    marks = np.zeros((1 << len(labels), len(labels) if width is None else width), np.int64)
    marks[:, labels] = np.arange(len(marks))[:, None] >> np.arange(len(labels)) & 1
    return marks


def _laws(hits_in: Ints, hits_out: Ints, chances: Floats, game: Game) -> Floats:
    """(S by T, cells) the chance of each cell; hits_in: (rows, S), hits_out: (rows, T)."""
    a, b = game.cells()
    out = (hits_out.T[:, :, None] == np.arange(game.most_out + 1)).astype(np.float64) * chances[:, None]
    into = (hits_in.T[:, :, None] == np.arange(game.most_in + 1)).astype(np.float64)
    table = np.stack([np.einsum("na,tnb->tab", each, out, optimize=True) for each in into])
    laws: Floats = table[:, :, a, b].reshape(-1, len(a))
    return laws
