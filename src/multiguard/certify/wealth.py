"""log K, the wealth of bets against every pair (U, V): lower bounds from the draws of one image.

Nothing here depends on the number of draws to come: K of the first n draws is the same whatever follows, so it may be
read at any n.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np

from multiguard.certify.arrays import Bools, Floats, Ints
from multiguard.certify.bets import Game, best_stakes, breaking, information, law_of, payoffs, scores_of
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws

# The draws after which bets are chosen again, from all draws before; draws before the first are not bet on.
BETTING_CUTS = (30, 100, 200, 500, *(m * 10**e for e in range(3, 9) for m in (1, 2, 5)))
# Bets are made to reach this many times what they need by the next of these numbers of draws.
_HORIZONS, _AIM = tuple(10**e for e in range(3, 10)), 1.15
# Draws that were never seen are added to those seen: so many at the least W, and as many spread over all values.
_UNSEEN = 0.2
# Halvings in the search for the law that a bet is made for, at most _FURTHEST_AIM beyond the law that just breaks.
_STEPS, _FURTHEST_AIM = 8, 3.0
# Options are chosen for the r that is reached by so many draws, or by twice those so far where that is more.
_FIRST_AIM = 3000
# S and v are chosen for ranges of r of this length.
_STRIDE = 0.1
# A claim is given up where even so many times the growth expected would not reach it.
_HOPE = 4.0
# So many r are evaluated before a look at whether there is any use in larger ones.
_RADII_AT_A_TIME = 25


def wealth(draws: Draws, game: Game, claims: Sequence[Claim], radii: Floats) -> Floats:
    """(claims, radii) log K of the weakest pair of each claim, the best value that it had at the end of a block.

    `radii` rise. A claim without hope from some r on has wealth 0 there.
    """
    cuts = [cut for cut in BETTING_CUTS if cut < draws.count]
    if not cuts:
        return np.zeros((len(claims), len(radii)))
    blocks = [Block(draws, ends, game, claims) for ends in zip(cuts, [*cuts[1:], draws.count], strict=True)]
    return np.stack([_ClaimWealth(blocks, claim, radii).best() for claim in claims])


class _ClaimWealth:
    """The bets of every block against every U, and what they gain."""

    def __init__(self, blocks: Sequence[Block], claim: Claim, radii: Floats) -> None:
        self.blocks, self.claim, self.radii = blocks, claim, radii
        outs = _sets(blocks[0], claim)
        middles, self.group = np.unique(np.floor(radii / _STRIDE + 1e-9), return_inverse=True)
        self.bets = [_Bets(block, claim, outs, (middles + 0.5) * _STRIDE) for block in blocks]

    def best(self) -> Floats:
        """(radii,) the least over U of the best wealth at the end of a block, 0 where there is no hope of the claim.

        There is none where the growth expected is far too small, nor far beyond the first r that is not reached.
        """
        each = zip(self.blocks, self.bets, strict=True)
        hope = np.sum([(block.last - block.first) * np.maximum(bets.pace, 0.0) ** 2 for block, bets in each], axis=0)
        hopeful = int(np.logical_and.accumulate(_HOPE * hope[self.group] > self.claim.needed).sum())
        least = np.zeros(len(self.radii))
        for start in range(0, hopeful, _RADII_AT_A_TIME):
            part = slice(start, min(start + _RADII_AT_A_TIME, hopeful))
            least[part] = self._least(self.radii[part], self.group[part])
            if np.any(least[part] < self.claim.needed):
                break
        return least

    def _least(self, radii: Floats, group: Ints) -> Floats:
        """(radii,) as `best`, at these r."""
        wealth = np.cumsum([bets.gains(radii, group) for bets in self.bets], axis=0)
        least: Floats = np.maximum(wealth.max(axis=0), 0.0).min(axis=1)
        return least


class _Bets:
    """The bets in one block: for each U and range of r an option, chosen by its expected growth.

    Attributes:
        pace: (ranges,) about the square root of the growth of log K per draw, for the weakest U.
    """

    def __init__(self, block: Block, claim: Claim, outs: Ints, middles: Floats) -> None:
        self.block, self.claim = block, claim
        self.options = block.options(claim)
        law = self._law()
        self.scores = scores_of(law)
        ladder = self.options.ladder
        self.ends = breaking(self.scores, ladder.gaps, ladder.least)
        speed = information(law, self.scores, ladder.gaps, self.ends)
        paces = (self.ends[:, None] - middles) * np.sqrt(speed)[:, None]
        aim = np.sqrt(claim.needed / max(_FIRST_AIM, 2 * block.first))
        self.chosen, self.pace = _choose(paces, block.within(outs), len(self.options.sizes), aim)

    def gains(self, radii: Floats, group: Ints) -> Floats:
        """(radii, sets U) what every pair with this U gains at least in the block, at these r in these ranges."""
        rows = self.chosen[:, group].T
        pairs, which = np.unique(rows * len(radii) + np.arange(len(radii))[:, None], return_inverse=True)
        option, at = np.divmod(pairs, len(radii))
        gains = np.empty(len(pairs))
        logs = self._logs(option, radii[at])
        starts = np.flatnonzero(np.diff(option, prepend=-1))
        for start, stop in zip(starts, np.append(starts[1:], len(pairs)), strict=False):
            subset, size = divmod(int(option[start]), len(self.options.sizes))
            v, part = self.options.sizes[size], slice(start, stop)
            gains[part] = self.block.gains(self.claim, subset, v, logs[:, :, part])
        by_set: Floats = gains[which.reshape(rows.shape)]
        return by_set

    def _logs(self, option: Ints, r: Floats) -> Floats:
        """(a, b, pairs) log g of a draw that hits a labels of S and b of T, for these options and r."""
        gaps, least = self.options.ladder.gaps[option], self.options.ladder.least[option]
        scores = self.scores[option] - (self.ends[option] - r)[:, None]  # of a law that just breaks at r
        x = payoffs(scores, gaps, least, r)
        along = np.log1p(self._stakes(scores, x, self.ends[option] - r)[:, None] * x)
        a, b = self.block.game.cells()
        width = self.block.game.most_out + 1
        logs = np.zeros((len(option), (self.block.game.most_in + 1) * width))
        np.put_along_axis(logs, (a * width + b)[self.options.ladder.order[option]], along, axis=1)
        by_hits: Floats = logs.T.reshape(self.block.game.most_in + 1, width, len(option))
        return by_hits

    def _stakes(self, scores: Floats, x: Floats, ahead: Floats) -> Floats:
        """(rows,) stakes for the weakest law that would reach what is needed by the horizon.

        It lies beyond the law that just breaks, in the direction of the draws so far. How far beyond they are is not
        estimated, which would cost growth where it matters: near the last r that can be reached. Draws
        further away, by `ahead`, are bet on as they are, and reach what is needed sooner.
        """
        horizon = next(draws for draws in _HORIZONS if draws > self.block.first)
        low, high = np.zeros(len(x)), np.full(len(x), _FURTHEST_AIM)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            short = best_stakes(law_of(scores + middle[:, None]), x)[1] * horizon < _AIM * self.claim.needed
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return best_stakes(law_of(scores + np.maximum(high, ahead)[:, None]), x)[0]

    def _law(self) -> Floats:
        """(options, cells) how often each W came before, with draws that were never seen."""
        possible = self.options.ladder.possible
        law = self.options.counts + _UNSEEN * possible / possible.sum(axis=1, keepdims=True)
        law[:, 0] += _UNSEEN
        normalised: Floats = law / law.sum(axis=1, keepdims=True)
        return normalised


def _choose(paces: Floats, inside: Bools, sizes: int, aim: float) -> tuple[Ints, Floats]:
    """The option of the fastest pace within each U; below the last r where that reaches `aim`, the option there.

    Returns:
        (sets U, ranges) the options, and (ranges,) the pace for the weakest U.
    """
    by_subset = paces.reshape(-1, sizes, paces.shape[1])
    size, best = by_subset.argmax(axis=1), by_subset.max(axis=1)
    value = np.where(inside[:, :, None], best[None], -np.inf)
    subset, reached = value.argmax(axis=1), value.max(axis=1)
    chosen: Ints = subset * sizes + size[subset, np.arange(paces.shape[1])]
    last = np.maximum((reached >= aim).sum(axis=1) - 1, 0)
    there = np.maximum(np.arange(paces.shape[1]), last[:, None])
    return np.take_along_axis(chosen, there, axis=1), reached.min(axis=0)


@cache
def _sets_out(num_true: int, out: int) -> Ints:
    """(sets, d) every U."""
    sets = list(combinations(range(num_true), out))
    marks = np.zeros((len(sets), num_true), np.int64)
    for row, members in enumerate(sets):
        marks[row, list(members)] = 1
    return marks


def _sets(first: Block, claim: Claim) -> Ints:
    """(sets, d) every U; for many labels single ones such that every U contains one, the likeliest before `first`."""
    d = len(first.order)
    if d <= MOST_SUBSET_LABELS or claim.out == 0:
        return _sets_out(d, claim.out)
    return np.eye(d, dtype=np.int64)[first.order[: d - claim.out + 1]]
