"""A block of draws between two cuts: what the draws before it suggest, and what a bet gains in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from multiguard.certify.arrays import Bools, Floats, Ints
from multiguard.certify.bets import Game, Ladders, ladders
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws
from multiguard.certify.tally import MOST_COUNTED, RivalHits, Tally, count_sets, hit_bits, near_labels, rival_sets

# So many draws that were never seen are added to those seen, and a v-th of the second number for a T of v labels: the
# fewer labels T has, the more the worst T differs from the others.
_UNSEEN, _UNSEEN_PER_SIZE = 1.4, 1.0
# At most so many T of a size are counted, of at most so many labels.
_MOST_HARD, _MOST_NEAR = 60, 16
# The sizes v of T that are tried, besides |V| itself.
_SIZES = (1, 2, 3, 4, 6, 8, 10, 13, 17, 22, 28, 36, 46, 60, 78, 100)


@dataclass(frozen=True)
class Claim:
    """What breaks a claim: |U| = `out` labels of L are out and |V| = `into` others are in; 0 where that side is absent.

    Attributes:
        out: |U|.
        into: |V|.
        needed: The log K that every pair must reach.
    """

    out: int
    into: int
    needed: float


@dataclass(frozen=True, eq=False)
class Options:
    """The bets that are tried for one claim in one block: a row for each S and v, S the slower index.

    Attributes:
        sizes: The sizes v of T.
        ladder: The values of W, a row for each option.
        counts: (options, cells) how often each value of W was seen in the draws before the block.
        unseen: (options, 1) how many draws that were never seen a forecast should add.
    """

    sizes: tuple[int, ...]
    ladder: Ladders
    counts: Floats
    unseen: Floats


class Block:
    """The draws from one cut to the next, and what the draws before it say.

    Attributes:
        first: The cut; the draws before it choose the bets.
        last: The next cut, or the number of draws.
        planned: The next cut.
        members: (sets, d) the sets S that are tried.
    """

    def __init__(self, draws: Draws, ends: tuple[int, int], planned: int, game: Game, claims: Sequence[Claim]) -> None:
        (self.first, self.last), self.planned = ends, planned
        self.game, self.rivals, self._pattern = game, draws.rivals, draws.pattern[: self.last]
        seen, self._start = np.searchsorted(draws.draw, (self.last, self.first))
        self._draw = draws.draw[:seen]
        counts = np.bincount(draws.rival[: self._start], minlength=draws.rivals)
        place = np.empty(draws.rivals, np.int64)
        place[np.argsort(-counts, kind="stable")] = np.arange(draws.rivals)
        self._place = place[draws.rival[:seen]]
        self._hits = np.bincount(self._draw, minlength=self.last)
        self._ahead = self._hits_ahead(max(claim.into for claim in claims))
        on_labels = np.bincount(self._pattern[: self.first], minlength=len(draws.patterns)) @ draws.patterns
        self.order = np.argsort(-on_labels, kind="stable")
        self.members = _subsets(self.order, max(claim.out for claim in claims))
        self._overlap = self.members.astype(np.int64) @ draws.patterns.T
        self._overlaps = (self._overlap[:, None] == np.arange(game.most_in + 1)[:, None]).astype(np.float64)
        self._sizes = tuple(self.members.sum(axis=1).tolist())

    def options(self, claim: Claim) -> Options:
        """What may be bet on, counted in the draws before for a T that is hard to refute.

        A bet made for one T may lose to another. So the counts up to each value of W lie halfway between those of the
        hardest T and the largest of any T.
        """
        sizes = _rival_sizes(claim.into, self.game.most_out if self.game.threshold is not None else claim.into)
        ladder = ladders(self.game, self._sizes, sizes)
        order = ladder.order.reshape(len(self.members), len(sizes), -1)
        counts = np.empty(order.shape)
        for i, v in enumerate(sizes):
            table = self._tables(claim.into, v if claim.into else 0)
            along = np.take_along_axis(table, order[:, i, :, None], axis=1)
            below = np.cumsum(along, axis=1)
            hardest = below.sum(axis=1).argmax(axis=1)
            single = below[np.arange(len(below)), :, hardest]
            counts[:, i] = np.diff((below.max(axis=2) + single) / 2, axis=1, prepend=0.0)
        unseen = [_UNSEEN + (_UNSEEN_PER_SIZE / v if claim.into else 0.0) for v in sizes]
        each = np.tile(unseen, len(self.members))[:, None]
        return Options(sizes, ladder, counts.reshape(ladder.order.shape), each)

    def _tables(self, into: int, v: int) -> Floats:
        """(S, cells, T) how often each cell came in the draws before, for T of v labels, the likeliest first."""
        before, rows, shape = into - v, self._pattern[: self.first], (self._overlap.shape[1], self.game.most_out + 1)
        is_first_hardest = self.game.most_hits == 1 or (v == 1 and self.game.most_in == 0) or not 1 <= v <= MOST_COUNTED
        near = v if is_first_hardest else min(near_labels(v, _MOST_HARD, v), _MOST_NEAR, self.rivals - before)
        if near == v:
            own = self._ahead[: self.first, into] - self._ahead[: self.first, before]
            flat = np.bincount(rows * shape[1] + own, minlength=shape[0] * shape[1])
            seen: Floats = flat.reshape(*shape, 1).astype(np.float64)
        else:
            hits = hit_bits(self._draw[: self._start], self._place[: self._start] - before, near, self.first)
            seen = count_sets(rows, hits, rival_sets(near, v), shape)
        a, b = self.game.cells()
        table: Floats = np.tensordot(self._overlaps, seen, 1)[:, a, b]
        return table

    def within(self, sets: Ints) -> Bools:
        """(sets given, sets tried) whether each S lies within each U."""
        inside: Bools = sets @ self.members.T == np.array(self._sizes)
        return inside

    def steps(self, count: int) -> list[int]:
        """Where the steps of the block end: about so many by the next cut, and now."""
        ends = np.linspace(self.first, self.planned, count + 1).round().astype(np.int64)[1:]
        return [*np.unique(ends[(ends > self.first) & (ends < self.last)]).tolist(), self.last]

    def tally(self, claim: Claim, subset: int, v: int, ends: Sequence[int]) -> Tally:
        """What a bet on this S and the last v labels of V depends on, in steps that end at `ends`."""
        rows, depth = slice(self.first, self.last), self.game.most_in + 1
        step = np.searchsorted(ends, np.arange(self.first, self.last), side="right")
        row = step * depth + self._overlap[subset][self._pattern[rows]]
        hits_in = np.bincount(row, minlength=len(ends) * depth).reshape(len(ends), depth)
        if claim.into == 0:
            return Tally(hits_in)
        before = claim.into - v
        later = self._place[self._start :] >= before
        draw, place = self._draw[self._start :][later] - self.first, self._place[self._start :][later] - before
        hits = np.minimum(self._hits[rows] - self._ahead[rows, before], v)
        return Tally(hits_in, RivalHits(row, hits, draw, place, self.rivals - before, v, self.game.most_out + 1))

    def _hits_ahead(self, most: int) -> Ints:
        """(draws, most + 1) how many of the first 0, 1, ..., `most` labels outside L each draw hits."""
        near = self._place < most
        keys = self._draw[near] * (most + 1) + self._place[near] + 1
        return np.cumsum(np.bincount(keys, minlength=self.last * (most + 1)).reshape(self.last, -1), axis=1)


def _rival_sizes(into: int, most: int) -> tuple[int, ...]:
    """The sizes v of T that are tried in a V of `into` labels, at most `most`."""
    return tuple(sorted({v for v in (*_SIZES, into) if 1 <= v <= min(into, most)})) or (1,)


def _subsets(order: Ints, most: int) -> Bools:
    """(sets, d) the sets S tried: single labels, pairs, and runs in this order; single labels only where d > 12."""
    d = len(order)
    longest = min(most, d if d <= MOST_SUBSET_LABELS else 1)
    runs = [tuple(range(i, i + size)) for size in range(3, longest + 1) for i in range(d - size + 1)]
    sets = [*((i,) for i in range(d) if longest >= 1), *(combinations(range(d), 2) if longest >= 2 else ()), *runs]
    members = np.zeros((max(1, len(sets)), d), dtype=np.bool_)
    for row, places in enumerate(sets):
        members[row, order[list(places)]] = True
    return members
