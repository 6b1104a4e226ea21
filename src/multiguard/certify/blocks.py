"""A block of draws between two cuts: what the draws before it suggest, and what a bet gains against every V at once.

A draw that hits a labels of S and b labels of T loses psi(a, b) = log g(a, 0) - log g(a, b) to T. Let F(T) be the sum
over draws. psi is convex in b, so a label adds the more to F the more labels T has already: F is supermodular. It is
bounded for every T of v labels in two ways, and the lesser one counts (`docs/theory.md` has the proof):

- by the sum of the v largest weights, psi(a, B) / B for each hit on the label, B the hits on all labels T can hold;
- by counting: exactly for every T among the few labels that come first, and for other T from the best one with a label
  less. The order is that of earlier draws: stakes follow from these bounds, and must not know the draws to come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np

from multiguard.certify.arrays import Bools, Floats, Ints
from multiguard.certify.bets import Game, Ladders, ladders
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws

# At most so many sets are counted, of at most so many labels.
_MOST_SETS, MOST_COUNTED = 130, 16


@cache
def rival_sets(labels: int, v: int) -> Ints:
    """(labels, sets) every set of v of the labels, the first v before all others."""
    sets = list(combinations(range(labels), v))
    marks = np.zeros((labels, len(sets)), np.int64)
    for column, members in enumerate(sets):
        marks[list(members), column] = 1
    return marks


@cache
def near_labels(v: int, most: int, *sizes: int) -> int:
    """The most labels, from v on, that have at most `most` sets of these sizes."""
    labels = v
    while sum(comb(labels + 1, size) for size in sizes) <= most:
        labels += 1
    return labels


def count_sets(rows: Ints, hits: Ints, sets: Ints, shape: tuple[int, int]) -> Floats:
    """(rows, hits, sets) how many draws of each row hit so many labels of each set.

    Args:
        rows: (draws,) the row of each draw.
        hits: (draws,) the labels that each draw hits, one bit each.
        sets: (labels, sets) the members of each set.
        shape: How many rows there are, and how many numbers of hits.
    """
    labels, columns = sets.shape
    kinds, count = np.unique(rows << labels | hits, return_counts=True)
    own = (kinds[:, None] >> np.arange(labels) & 1) @ sets
    keys = ((kinds >> labels)[:, None] * shape[1] + own) * columns + np.arange(columns)
    counted = np.bincount(keys.ravel(), np.repeat(count, columns), minlength=shape[0] * shape[1] * columns)
    return counted.reshape(*shape, columns).astype(np.float64)


def hit_bits(draw: Ints, place: Ints, labels: int, draws: int) -> Ints:
    """(draws,) which of the first labels each draw hits, one bit each; a hit is a draw and the place of a label."""
    near = (place >= 0) & (place < labels)
    return np.bincount(draw[near], 1 << place[near], minlength=draws).astype(np.int64)


class Tally:
    """The least that a pair with one S and any V gains in a block, step by step.

    T is the v labels of V that come last in the order of the earlier draws, so none of the first |V| - v.

    Args:
        hits_in: (steps, a) how many draws hit a labels of S.
        losses: The most that any T has lost; None without T.
    """

    def __init__(self, hits_in: Ints, losses: "Losses | None" = None) -> None:
        self.hits_in, self.losses = hits_in.astype(np.float64), losses
        self._plain = np.zeros(1)

    def add(self, step: int, logs: Floats) -> Floats:
        """(pairs,) what is gained from the first step to this one; logs: (pairs, slots) log g by a and b."""
        by_hits = logs.reshape(len(logs), self.hits_in.shape[1], -1)
        self._plain = self._plain + by_hits[:, :, 0] @ self.hits_in[step]
        return self._plain if self.losses is None else self._plain - self.losses.add(step, by_hits[:, :, :1] - by_hits)


class Losses:
    """The most that any T has lost, step by step.

    Args:
        row: (draws,) the step of each draw and its hits on S, as step * depth + a.
        hits: (draws,) B, the hits of each draw on the labels that T can hold, at most v.
        draw: (hits,) the draw of each of these hits.
        place: (hits,) its label, by its place in the order of the earlier draws.
        labels: How many labels T can hold.
        v: The number of labels in T.
        shape: The number of steps, and how many a and B there are.
    """

    def __init__(
        self, row: Ints, hits: Ints, draw: Ints, place: Ints, labels: int, v: int, shape: tuple[int, int, int]
    ) -> None:
        self.v = v
        steps, depth, span = shape
        self.is_counted = 1 < self.v <= MOST_COUNTED and span > 2  # where T is hit once at most, weights are exact
        self.near = min(near_labels(self.v, _MOST_SETS, self.v, self.v - 1), labels) if self.is_counted else 0
        columns = max(self.near, int(place.max(initial=-1)) + 1)
        slot = row * span + hits
        table = np.bincount(slot[draw] * columns + place, minlength=steps * depth * span * columns)
        table = table.reshape(steps, depth * span, columns)
        self.used = np.flatnonzero(table.any(axis=(0, 2)))
        self.table = table[:, self.used].astype(np.float64)
        if self.is_counted:
            bits = hit_bits(draw, place, self.near, len(row))
            sizes = (rival_sets(self.near, size) for size in (self.v, self.v - 1))
            counts = [count_sets(row, bits, sets, (steps * depth, span)) for sets in sizes]
            self.whole, self.fewer = (each.reshape(steps, depth * span, -1) for each in counts)
        zero = np.zeros((1, 1))
        self._weights = self._whole = self._fewer = self._first = self._last = zero

    def add(self, step: int, lost: Floats) -> Floats:
        """(pairs,) the most that any T has lost from the first step to this one; lost: (pairs, a, b) psi in it."""
        self._weights = self._weights + self._by_label(step, lost / np.maximum(np.arange(lost.shape[2]), 1))
        most = _largest(self._weights, self.v)
        return np.minimum(most, self._counted(step, lost)) if self.is_counted else most

    def _counted(self, step: int, lost: Floats) -> Floats:
        """(pairs,) the most that any T has lost: exactly among the near labels, else by one label less."""
        flat = lost.reshape(len(lost), -1)
        self._whole = self._whole + flat @ self.whole[step]
        most: Floats = self._whole.max(axis=1)
        if self.table.shape[2] == self.near:
            return most
        self._fewer = self._fewer + flat @ self.fewer[step]
        alone = np.broadcast_to(lost[:, :, 1:2], lost.shape)
        self._first = self._first + self._by_label(step, alone)[:, : self.near]
        self._last = self._last + self._by_label(step, np.diff(lost, axis=2, prepend=0.0))[:, self.near :]
        outside = -np.sort(-self._last, axis=1)[:, : self.v]
        instead = np.sort(self._first, axis=1)[:, : outside.shape[1] - 1]
        more = np.cumsum(outside[:, 1:] - instead, axis=1).max(axis=1, initial=0.0)
        beside: Floats = self._fewer.max(axis=1) + outside[:, 0] + more
        return np.maximum(most, beside)

    def _by_label(self, step: int, each: Floats) -> Floats:
        """(pairs, labels) the sum of `each`, (pairs, a, B), over the draws of a step that hit the label."""
        total: Floats = each.reshape(len(each), -1)[:, self.used] @ self.table[step]
        return total


def _largest(values: Floats, count: int) -> Floats:
    """(rows,) the sum of the largest values of each row; none is negative."""
    if values.shape[1] > count:
        values = np.partition(values, values.shape[1] - count, axis=1)[:, values.shape[1] - count :]
    total: Floats = values.sum(axis=1)
    return total


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
        shape = len(ends), depth, self.game.most_out + 1
        return Tally(hits_in, Losses(row, hits, draw, place, self.rivals - before, v, shape))

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
