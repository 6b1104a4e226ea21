"""What a bet gains in a block against every V at once.

A draw that hits a labels of S and b labels of T loses psi(a, b) = log g(a, 0) - log g(a, b) to T. Let F(T) be the sum
over draws. psi is convex in b, so a label adds the more to F the more labels T has already: F is supermodular. It is
bounded for every T of v labels in two ways, and the lesser one counts (`docs/theory.md` has the proof):

- by the sum of the v largest weights, psi(a, B) / B for each hit on the label, B the hits on all labels T can hold;
- by counting: exactly for every T among the few labels that come first, and for other T from the best one with a label
  less. The order is that of earlier draws: stakes follow from these bounds, and must not know the draws to come.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np

from multiguard.certify.arrays import Floats, Ints

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


@dataclass(frozen=True, eq=False)
class RivalHits:
    """The hits of a block on the labels that T can hold.

    Attributes:
        row: (draws,) the step of each draw and its hits on S, as step * depth + a.
        hits: (draws,) B, the hits of each draw, at most v.
        draw: (hits,) the draw of each hit.
        label: (hits,) its label, by its place in the order of the earlier draws.
        labels: How many labels there are.
        v: The number of labels in T.
        span: How many B there are.
    """

    row: Ints
    hits: Ints
    draw: Ints
    label: Ints
    labels: int
    v: int
    span: int


class Tally:
    """The least that a pair with one S and any V gains in a block, step by step.

    T is the v labels of V that come last in the order of the earlier draws, so none of the first |V| - v.

    Args:
        hits_in: (steps, a) how many draws hit a labels of S.
        rivals: The hits on the labels that T can hold; None without T.
    """

    def __init__(self, hits_in: Ints, rivals: RivalHits | None = None) -> None:
        self.hits_in, self.losses = (
            hits_in.astype(np.float64),
            None if rivals is None else Losses(rivals, hits_in.shape),
        )
        self._plain = np.zeros(1)

    def add(self, step: int, logs: Floats) -> Floats:
        """(pairs,) what is gained from the first step to this one; logs: (pairs, slots) log g by a and b."""
        by_hits = logs.reshape(len(logs), self.hits_in.shape[1], -1)
        self._plain = self._plain + by_hits[:, :, 0] @ self.hits_in[step]
        return self._plain if self.losses is None else self._plain - self.losses.add(step, by_hits[:, :, :1] - by_hits)


class Losses:
    """The most that any T has lost, step by step.

    Args:
        rivals: The hits on the labels that T can hold.
        shape: The number of steps, and how many a there are.
    """

    def __init__(self, rivals: RivalHits, shape: tuple[int, int]) -> None:
        self.v, place = rivals.v, rivals.label
        (steps, depth), span = shape, rivals.span
        self.is_counted = 1 < self.v <= MOST_COUNTED and span > 2  # where T is hit once at most, weights are exact
        self.near = min(near_labels(self.v, _MOST_SETS, self.v, self.v - 1), rivals.labels) if self.is_counted else 0
        labels = max(self.near, int(place.max(initial=-1)) + 1)
        slot = rivals.row * span + rivals.hits
        table = np.bincount(slot[rivals.draw] * labels + place, minlength=steps * depth * span * labels)
        table = table.reshape(steps, depth * span, labels)
        self.used = np.flatnonzero(table.any(axis=(0, 2)))
        self.table = table[:, self.used].astype(np.float64)
        if self.is_counted:
            bits = hit_bits(rivals.draw, place, self.near, len(rivals.row))
            sizes = (rival_sets(self.near, size) for size in (self.v, self.v - 1))
            counts = [count_sets(rivals.row, bits, sets, (steps * depth, span)) for sets in sizes]
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
