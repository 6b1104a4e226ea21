"""The joint certificate: what the votes prove draw by draw, beyond their c averages.

If fewer than e labels of L survive, some U in L with |U| = d - e + 1 is out and some V outside L with |V| = s =
k - e + 1 is in, so max_U p* <= min_V p*. Size e is certified where, for every such pair, a lower bound of the left
exceeds an upper bound of the right:

    min over U of max over S in U of A(S)  >  B_s
    A(S) = (1/|S|) sum_{l=1..min(k',|S|)} down(q_{S,l}),    q_{S,l} <= Pr(at least l labels of S are hit)
    B_s  = min over v=1..s of (1/v) sum_{l=1..min(k',v)} up(t_{v,l})

Only one pair has to be refuted wrongly for a false claim, and which pair does not depend on the votes. So the error
alpha is divided among the bounds of one pair, not over all labels. `docs/theory.md` has the proof.
"""

from functools import cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.bounds import Bounds
from multiguard.certify.group import Group, Setting
from multiguard.certify.layers import Layers, crossing, fill
from multiguard.certify.tally import MOST_SUBSET_LABELS
from multiguard.certify.types import Floats

# How alpha is divided, fixed beforehand: bounds over U, bounds over V, and the layers of L that cap the latter.
SHARE_U, SHARE_V, SHARE_CAP = 0.50, 0.40, 0.10

# Alpha divided among more bounds than this would be lost in the smallest doubles, and prove nothing anyway.
_MOST_EVENTS = 10**80


def joint_radii(group: Group, setting: Setting, bounds: Bounds) -> Floats:
    """The r, (images, sizes), at which the joint certificate proves each size, all sizes at once."""
    sizes = group.uncertain_sizes(setting.k)
    if not sizes:
        return group.with_certain_sizes([], setting.k)
    one_size = Setting(setting.k, setting.k_prime, setting.alpha / group.sizes(setting.k))
    side = _SubsetSide if group.num_true <= MOST_SUBSET_LABELS else _OverlapSide
    left = side(group, sizes, one_size, bounds)
    right = Layers.stacked([_right_side(group, e, one_size, bounds) for e in sizes], absent=np.inf)
    r = crossing(left, lambda r: right.shifted(r).min(axis=1), right.rows)
    return group.with_certain_sizes(np.split(r, len(sizes)), setting.k)


class _SubsetSide:
    """r -> min over U of max over S in U of A(S), from every subset of L; rows are sizes by pictures."""

    def __init__(self, group: Group, sizes: range, setting: Setting, bounds: Bounds) -> None:
        self.members = _subset_sizes(group.num_true)
        self.outs = [group.num_true - e + 1 for e in sizes]
        mass = _layer_mass(group, setting.k_prime)
        lower = np.zeros((len(sizes), *mass.shape))
        for row, out in enumerate(self.outs):
            inside = np.flatnonzero((self.members >= 1) & (self.members <= out))
            level = _levels(SHARE_U * setting.alpha, out, setting.k_prime)[self.members[inside] - 1]
            lower[row][:, inside] = bounds.lower(mass[:, inside], group.draws[:, None, None], level[:, None])
        self.layers = Layers.of(lower.reshape(-1, *mass.shape[1:]), 1 / np.maximum(self.members, 1))

    def __call__(self, r: Floats) -> Floats:
        best = _best_within(self.layers.shifted(-r)).reshape(len(self.outs), -1, len(self.members))
        weakest = [row[:, self.members == out].min(axis=1) for row, out in zip(best, self.outs, strict=True)]
        return np.concatenate(weakest)


class _OverlapSide:
    """r -> a lower bound of max over U of p*, from single labels and from how many labels of L each draw hits.

    For too many labels to try every subset. Single labels are combined as in Theorem 1 (at no cost in alpha); and
    since a draw that hits h labels of L hits at least h - (e - 1) of U, the layers of L from e on serve every U.
    """

    def __init__(self, group: Group, sizes: range, setting: Setting, bounds: Bounds) -> None:
        terms = [self._terms(group, e, setting, bounds) for e in sizes]
        self.singles = Layers.stacked([singles for singles, _ in terms], absent=0.0)
        self.overlaps = Layers.stacked([overlaps for _, overlaps in terms], absent=0.0)

    @staticmethod
    def _terms(group: Group, e: int, setting: Setting, bounds: Bounds) -> tuple[Layers, Layers]:
        out = group.num_true - e + 1
        deep = max(0, min(setting.k_prime, group.num_true) - e + 1)
        share = SHARE_U * setting.alpha / (2 if deep else 1)
        draws = group.draws[:, None]
        single = -np.sort(-bounds.lower(group.mass_on_labels, draws, share / out), axis=1)[:, e - 1 :]
        taken = np.arange(1, out + 1)
        shared = np.minimum(taken, setting.k_prime)
        means = np.minimum(np.cumsum(single, axis=1) / shared, 1.0)
        overlap = bounds.lower(_at_least(group)[:, e - 1 :], draws, share / max(deep, 1))
        return Layers.of(means[:, :, None], shared / taken), Layers.of(overlap[:, None, :], np.array([1 / out]))

    def __call__(self, r: Floats) -> Floats:
        best: Floats = np.maximum(self.singles.shifted(-r).max(axis=1), self.overlaps.shifted(-r)[:, 0])
        return best


def _right_side(group: Group, e: int, setting: Setting, bounds: Bounds) -> Layers:
    """The terms of B_s: for each v the layers of the v least voted labels of the worst V, filled up evenly."""
    s, k_prime = setting.k - e + 1, setting.k_prime
    draws = group.draws[:, None]
    mass = group.rivals(s)
    singles = bounds.upper(mass, draws, SHARE_V * setting.alpha / s**2)
    layers = min(k_prime, s)
    depth = np.arange(1, layers + 1)
    elsewhere = draws - _at_least(group)[:, ::-1][:, :layers]
    outside = bounds.upper(elsewhere, draws, SHARE_CAP * setting.alpha / layers)
    sums, votes = np.cumsum(singles[:, ::-1], axis=1), np.cumsum(mass[:, ::-1], axis=1)
    levels = _levels(SHARE_V * setting.alpha, s, k_prime)
    used = levels > 0
    caps = np.repeat(outside[:, None, :], s, axis=1)
    counted = bounds.upper(votes[:, used, None] / depth, draws[:, :, None], levels[used, None])
    caps[:, used] = np.minimum(caps[:, used], counted)
    sizes = np.arange(1, s + 1)
    caps[:, depth[None, :] > sizes[:, None]] = 0.0
    return Layers.of(fill(caps, sums), 1 / sizes)


def _levels(alpha: float, members: int, k_prime: int) -> Floats:
    """(members,) the level of each bound on a subset of 1, 2, ... of the members; 0 where it is too small to use.

    Each size gets an equal part of alpha, divided over its C(members, size) subsets and their layers.
    """
    events = [members * comb(members, size) * min(k_prime, size) for size in range(1, members + 1)]
    return np.array([alpha / count if count < _MOST_EVENTS else 0.0 for count in events])


def _at_least(group: Group) -> Floats:
    """(images, k') the mass of the draws that hit at least 1, 2, ..., k' labels of L."""
    overlap = np.stack([tally.overlap_mass for tally in group.tallies])
    return np.cumsum(overlap[:, :0:-1], axis=1)[:, ::-1]


def _layer_mass(group: Group, k_prime: int) -> Floats:
    """(images, 2^d, layers) the mass of the draws that hit at least l labels of each subset of L."""
    members = _subset_sizes(group.num_true)
    subsets = np.arange(len(members), dtype=np.int16)
    patterns = subsets[members <= k_prime]
    mass = np.stack([tally.pattern_mass[patterns] for tally in group.tallies])
    shared = members[subsets[:, None] & patterns]
    return np.stack([mass @ (shared >= depth).T for depth in range(1, min(k_prime, group.num_true) + 1)], axis=-1)


def _best_within(values: Floats) -> Floats:
    """(images, 2^d) the largest value among the subsets of each set, overwriting `values`."""
    images, sets = values.shape
    for bit in range(sets.bit_length() - 1):
        halves = values.reshape(images, -1, 2, 1 << bit)
        np.maximum(halves[:, :, 0], halves[:, :, 1], out=halves[:, :, 1])
    return values


@cache
def _subset_sizes(labels: int) -> NDArray[np.uint8]:
    """(2^labels,) the number of bits set in each index."""
    return np.bitwise_count(np.arange(1 << labels))
