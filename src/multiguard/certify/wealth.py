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
_STEADY = (1, 2, 5)
BETTING_CUTS = (30, 100, 200, 500, *(m * 10**e for e in range(3, 9) for m in _STEADY))
# The numbers of draws by which a bet may hope to reach what it needs.
_HORIZONS = (500, *(m * 10**e for e in range(3, 9) for m in _STEADY))
# Draws of the cautious law that were never seen: as many at the least W as spread over all values.
_CAUTION = 0.4
# The same of the bold law, nearly all at the least W.
_BOLD, _BOLD_REST = 0.01, 1e-4
# S and v are chosen for ranges of r of this length.
_STRIDE = 0.1
# A claim is given up where even so many times the growth expected would not reach it.
_HOPE = 4.0


def wealth(draws: Draws, game: Game, claims: Sequence[Claim], radii: Floats) -> Floats:
    """(claims, radii) log K of the weakest pair of each claim, the best value that it had at the end of a block.

    `radii` rise. A claim without hope from some r on has wealth 0 there.
    """
    cuts = [cut for cut in BETTING_CUTS if cut < draws.count]
    if not cuts:
        return np.zeros((len(claims), len(radii)))
    blocks = [Block(draws, ends, game, claims) for ends in zip(cuts, [*cuts[1:], draws.count], strict=True)]
    return np.stack([_ClaimWealth(blocks, claim, draws.num_true, radii).best() for claim in claims])


class _ClaimWealth:
    """The bets of every block against every U, and what they gain."""

    def __init__(self, blocks: Sequence[Block], claim: Claim, num_true: int, radii: Floats) -> None:
        self.blocks, self.claim, self.radii = blocks, claim, radii
        self.outs = _sets_out(num_true, claim.out) if num_true <= MOST_SUBSET_LABELS else _first_labels(blocks, claim)
        middles, self.group = np.unique(np.floor(radii / _STRIDE + 1e-9), return_inverse=True)
        self.bets = [_Bets(block, claim, self.outs, (middles + 0.5) * _STRIDE) for block in blocks]

    def best(self) -> Floats:
        """(radii,) the least over U of the best wealth at the end of a block, 0 before the first."""
        hope = sum((block.last - block.first) * bets.growth for block, bets in zip(self.blocks, self.bets, strict=True))
        hopeful = np.logical_and.accumulate(_HOPE * np.asarray(hope)[self.group] > self.claim.needed)
        least = np.zeros(len(self.radii))
        radii, group = self.radii[hopeful], self.group[hopeful]
        if len(radii):
            gained = np.cumsum([bets.gains(radii, group) for bets in self.bets], axis=0)
            least[hopeful] = np.maximum(gained.max(axis=0), 0.0).min(axis=1)
        return least


class _Bets:
    """The bets in one block: for each U and range of r an option, chosen by its expected growth.

    Attributes:
        growth: (ranges,) about how fast log K grows per draw for the weakest U.
    """

    def __init__(self, block: Block, claim: Claim, outs: Ints, middles: Floats) -> None:
        self.block, self.claim = block, claim
        self.options = block.options(claim)
        self.law = self._law(_CAUTION / 2, _CAUTION / 2)
        self.scores = scores_of(self.law)
        ladder = self.options.ladder
        self.ends = breaking(self.scores, ladder.gaps, ladder.least)
        speed = information(self.law, self.scores, ladder.gaps, self.ends)
        growth = np.maximum(self.ends[:, None] - middles, 0.0) ** 2 * speed[:, None]
        self.chosen, self.growth = _choose(growth, block.within(outs), len(self.options.sizes))

    def gains(self, radii: Floats, group: Ints) -> Floats:
        """(radii, sets U) what every pair with this U gains at least in the block."""
        rows = self.chosen[:, group].T
        pairs, which = np.unique(rows * len(radii) + np.arange(len(radii))[:, None], return_inverse=True)
        option, at = np.divmod(pairs, len(radii))
        live = self.ends[option] > radii[at]
        gains = np.zeros(len(pairs))
        if live.any():
            gains[live] = self._option_gains(option[live], radii[at[live]])
        return gains[which.reshape(rows.shape)]

    def _option_gains(self, option: Ints, r: Floats) -> Floats:
        """(pairs,) the gains of these options at these r; the options do not fall."""
        game, gains = self.block.game, np.zeros(len(option))
        a, b = game.cells()
        logs = np.zeros((len(option), (game.most_in + 1) * (game.most_out + 1)))
        cells = (a * (game.most_out + 1) + b)[self.options.ladder.order[option]]
        np.put_along_axis(logs, cells, self._logs(option, r), axis=1)
        starts = np.flatnonzero(np.diff(option, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(option)], strict=True):
            subset, size = divmod(int(option[start]), len(self.options.sizes))
            each = logs[start:stop].T.reshape(game.most_in + 1, game.most_out + 1, -1)
            gains[start:stop] = self.block.gains(self.claim, subset, self.options.sizes[size], each)
        return gains

    def _logs(self, option: Ints, r: Floats) -> Floats:
        """(pairs, cells) log g along the ladder."""
        x, stake, growth = self._bet(option, r, self.law[option])
        bold_x, bold_stake, bold_growth = self._bet(option, r, self._law(_BOLD, _BOLD_REST)[option])
        bold = needs_boldness(self.block.first, self.claim.needed, growth, bold_growth)
        logs: Floats = np.log1p(np.where(bold, bold_stake, stake)[:, None] * np.where(bold[:, None], bold_x, x))
        return logs

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
        return law / law.sum(axis=1, keepdims=True)


def needs_boldness(first: int, needed: float, growth: Floats, bold: Floats) -> Bools:
    """Whether the next horizon that can be reached after `first` draws is reached by bold bets only."""
    result, open_ = np.zeros(len(growth), dtype=np.bool_), np.ones(len(growth), dtype=np.bool_)
    for horizon in _HORIZONS:
        if horizon > first:
            result |= open_ & (bold * horizon >= needed) & (growth * horizon < needed)
            open_ &= np.maximum(bold, growth) * horizon < needed
    return result


def _choose(growth: Floats, inside: Bools, sizes: int) -> tuple[Ints, Floats]:
    """(sets U, ranges) the option of the fastest growth within each U, and (ranges,) its growth for the weakest U."""
    by_subset = growth.reshape(-1, sizes, growth.shape[1])
    size, best = by_subset.argmax(axis=1), by_subset.max(axis=1)
    value = np.where(inside[:, :, None], best[None], -1.0)
    subset = value.argmax(axis=1)
    chosen: Ints = subset * sizes + size[subset, np.arange(growth.shape[1])]
    return chosen, value.max(axis=1).min(axis=0)


@cache
def _sets_out(num_true: int, out: int) -> Ints:
    """(sets, d) every U."""
    sets = list(combinations(range(num_true), out))
    marks = np.zeros((len(sets), num_true), np.int64)
    for row, members in enumerate(sets):
        marks[row, list(members)] = 1
    return marks


def _first_labels(blocks: Sequence[Block], claim: Claim) -> Ints:
    """(labels, d) single labels such that every U contains one, the likeliest by the draws before the first block."""
    order = blocks[0].order
    return np.eye(len(order), dtype=np.int64)[order[: len(order) - claim.out + 1]] if claim.out else _sets_out(0, 0)
