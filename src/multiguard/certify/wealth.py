"""log K, the wealth of bets against every pair (U, V): lower bounds from the draws of one image.

Nothing here depends on the number of draws to come: K of the first n draws is the same whatever follows, so it may be
read at any n.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np

from multiguard.certify.arrays import Bools, Floats, Ints
from multiguard.certify.bets import Game, best_stakes, breaking, information, payoffs, scores_of
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws

# The draws after which bets are chosen again, from all draws before; draws before the first are not bet on.
BETTING_CUTS = (30, 100, 200, 500, *(m * 10**e for e in range(3, 9) for m in (1, 2, 5)))
# The numbers of draws by which a bet may hope to reach what it needs.
_HORIZONS = tuple(10**e for e in range(3, 9))
# Draws of the cautious law that were never seen: as many at the least W as spread over all values.
_CAUTION = 0.4
# The same of the bold law, nearly all at the least W.
_BOLD, _BOLD_REST = 0.01, 1e-4
# Options are chosen for the r that is reached by so many draws, or by twice those so far where that is more.
_FIRST_AIM = 1000
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
        self.law = self._law(_CAUTION / 2, _CAUTION / 2)
        self.scores = scores_of(self.law)
        ladder = self.options.ladder
        self.ends = breaking(self.scores, ladder.gaps, ladder.least)
        speed = information(self.law, self.scores, ladder.gaps, self.ends)
        paces = (self.ends[:, None] - middles) * np.sqrt(speed)[:, None]
        aim = np.sqrt(claim.needed / max(_FIRST_AIM, 2 * block.first))
        self.chosen, self.pace = _choose(paces, block.within(outs), len(self.options.sizes), aim)

    def gains(self, radii: Floats, group: Ints) -> Floats:
        """(radii, sets U) what every pair with this U gains at least in the block, at these r in these ranges."""
        rows = self.chosen[:, group].T
        pairs, which = np.unique(rows * len(radii) + np.arange(len(radii))[:, None], return_inverse=True)
        option, at = np.divmod(pairs, len(radii))
        gains = np.zeros(len(pairs))
        live = np.flatnonzero(self.ends[option] > radii[at])
        logs = self._logs(option[live], radii[at[live]])
        starts = np.flatnonzero(np.diff(option[live], prepend=-1))
        for start, stop in zip(starts, np.append(starts[1:], len(live)), strict=False):
            here = live[start:stop]
            subset, size = divmod(int(option[here[0]]), len(self.options.sizes))
            gains[here] = self.block.gains(self.claim, subset, self.options.sizes[size], logs[:, :, start:stop])
        by_set: Floats = gains[which.reshape(rows.shape)]
        return by_set

    def _logs(self, option: Ints, r: Floats) -> Floats:
        """(a, b, pairs) log g of a draw that hits a labels of S and b of T, for these options and r."""
        x, stake, growth = self._bet(option, r, self.law[option])
        bold_x, bold_stake, bold_growth = self._bet(option, r, self._law(_BOLD, _BOLD_REST)[option])
        bold = needs_boldness(self.block.first, self.claim.needed, growth, bold_growth)
        along = np.log1p(np.where(bold, bold_stake, stake)[:, None] * np.where(bold[:, None], bold_x, x))
        a, b = self.block.game.cells()
        width = self.block.game.most_out + 1
        logs = np.zeros((len(option), (self.block.game.most_in + 1) * width))
        np.put_along_axis(logs, (a * width + b)[self.options.ladder.order[option]], along, axis=1)
        by_hits: Floats = logs.T.reshape(self.block.game.most_in + 1, width, len(option))
        return by_hits

    def _bet(self, option: Ints, r: Floats, law: Floats) -> tuple[Floats, Floats, Floats]:
        """The payoffs, the best stakes and their growth, for a law that is moved to where it just breaks at r."""
        gaps, least = self.options.ladder.gaps[option], self.options.ladder.least[option]
        scores = scores_of(law)
        x = payoffs(scores - (breaking(scores, gaps, least) - r)[:, None], gaps, least, r)
        return x, *best_stakes(law, x)

    def _law(self, least: float, rest: float) -> Floats:
        """(options, cells) how often each W came before, with so many draws at the least W and spread over all."""
        possible = self.options.ladder.possible
        law = self.options.counts + rest * possible / possible.sum(axis=1, keepdims=True)
        law[:, 0] += least
        normalised: Floats = law / law.sum(axis=1, keepdims=True)
        return normalised


def needs_boldness(first: int, needed: float, growth: Floats, bold: Floats) -> Bools:
    """Whether the next horizon that can be reached after `first` draws is reached by bold bets only."""
    result, open_ = np.zeros(len(growth), dtype=np.bool_), np.ones(len(growth), dtype=np.bool_)
    for horizon in _HORIZONS:
        if horizon > first:
            result |= open_ & (bold * horizon >= needed) & (growth * horizon < needed)
            open_ &= np.maximum(bold, growth) * horizon < needed
    return result


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
