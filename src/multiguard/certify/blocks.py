"""A block of draws between two cuts: what the draws before it suggest, and what a bet gains in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from multiguard.certify.arrays import Bools, Floats, Ints
from multiguard.certify.bets import Game, Ladders, ladders
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws

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
    """

    sizes: tuple[int, ...]
    ladder: Ladders
    counts: Floats


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
        self._sizes = tuple(self.members.sum(axis=1).tolist())

    def options(self, claim: Claim) -> Options:
        """What may be bet on, counted in the draws before for the T of the V whose labels came first in them."""
        sizes = _rival_sizes(claim.into, self.game.most_out if self.game.threshold is not None else claim.into)
        ahead, pattern = self._ahead[: self.first], self._pattern[: self.first]
        hit = ahead[:, [claim.into]] - ahead[:, [claim.into - v for v in sizes]] if claim.into else ahead[:, :1]
        span, patterns = self.game.most_out + 1, self._overlap.shape[1]
        keys = (np.arange(len(sizes)) * patterns + pattern[:, None]) * span + hit
        seen = np.bincount(keys.ravel(), minlength=len(sizes) * patterns * span).reshape(len(sizes), patterns, span)
        overlaps = (self._overlap[:, :, None] == np.arange(self.game.most_in + 1)).astype(np.float64)
        a, b = self.game.cells()
        table = np.einsum("fpa,vpb->fvab", overlaps, seen, optimize=True)[:, :, a, b].reshape(-1, len(a))
        ladder = ladders(self.game, self._sizes, sizes)
        return Options(sizes, ladder, np.take_along_axis(table, ladder.order, axis=1))

    def within(self, sets: Ints) -> Bools:
        """(sets given, sets tried) whether each S lies within each U."""
        inside: Bools = sets @ self.members.T == np.array(self._sizes)
        return inside

    def steps(self, count: int) -> list[int]:
        """Where the steps of the block end: about so many by the next cut, and now."""
        ends = np.linspace(self.first, self.planned, count + 1).round().astype(np.int64)[1:]
        return [*np.unique(ends[(ends > self.first) & (ends < self.last)]).tolist(), self.last]

    def tally(self, claim: Claim, subset: int, v: int, ends: Sequence[int]) -> "Tally":
        """What a bet on this S and the last v labels of V depends on, in steps that end at `ends`."""
        rows, span = slice(self.first, self.last), self.game.most_out + 1
        step = np.searchsorted(ends, np.arange(self.first, self.last), side="right")
        a = self._overlap[subset][self._pattern[rows]]
        hits_in = np.bincount(step * (self.game.most_in + 1) + a, minlength=len(ends) * (self.game.most_in + 1))
        if claim.into == 0:
            return Tally(hits_in.reshape(len(ends), -1), np.zeros((len(ends), 0, self.game.slots)), 0, span)
        before = claim.into - v
        b = np.minimum(self._hits[rows] - self._ahead[rows, before], v)
        later = self._place[self._start :] >= before
        draw, place = self._draw[self._start :][later] - self.first, self._place[self._start :][later] - before
        shape = len(ends), self.rivals - before, self.game.slots
        keys = (step[draw] * shape[1] + place) * shape[2] + (a * span + b)[draw]
        table = np.bincount(keys, minlength=shape[0] * shape[1] * shape[2]).reshape(shape)
        return Tally(hits_in.reshape(len(ends), -1), table, v, span)

    def _hits_ahead(self, most: int) -> Ints:
        """(draws, most + 1) how many of the first 0, 1, ..., `most` labels outside L each draw hits."""
        near = self._place < most
        keys = self._draw[near] * (most + 1) + self._place[near] + 1
        return np.cumsum(np.bincount(keys, minlength=self.last * (most + 1)).reshape(self.last, -1), axis=1)


class Tally:
    """The least that a pair with one S and any V gains in a block, step by step.

    T is the v labels of V that come last in the order of the earlier draws, so none of the first |V| - v. A draw that
    hits B labels after those loses at most (log g(a, 0) - log g(a, B)) / B per label of T that it hits.

    Attributes:
        hits_in: (steps, a) how many draws hit a labels of S.
        table: (steps, labels, slots) how many draws hit each label that T can hold, by a and B.
        v: The number of labels in T; 0 without T.
        span: How many B there are.
    """

    def __init__(self, hits_in: Ints, table: Ints | Floats, v: int, span: int) -> None:
        self.v, self.span, self.hits_in = v, span, hits_in.astype(np.float64)
        self.used = np.flatnonzero(table.any(axis=(0, 1)))
        self.table = table[:, table.any(axis=(0, 2))][:, :, self.used].astype(np.float64)
        self._plain, self._losses = np.zeros(1), np.zeros((1, self.table.shape[1]))

    def add(self, step: int, logs: Floats) -> Floats:
        """(pairs,) what is gained from the first step to this one; logs: (pairs, slots) log g by a and b."""
        by_hits = logs.reshape(len(logs), -1, self.span)
        self._plain = self._plain + by_hits[:, :, 0] @ self.hits_in[step]
        if self.v == 0:
            return self._plain
        per_hit = (by_hits[:, :, :1] - by_hits) / np.maximum(np.arange(self.span), 1)
        self._losses = self._losses + per_hit.reshape(logs.shape)[:, self.used] @ self.table[step].T
        return self._plain - _largest(self._losses, self.v)


def _largest(values: Floats, count: int) -> Floats:
    """(rows,) the sum of the largest values of each row; none is negative."""
    if values.shape[1] > count:
        values = np.partition(values, values.shape[1] - count, axis=1)[:, values.shape[1] - count :]
    total: Floats = values.sum(axis=1)
    return total


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
