"""The draws of one image: in their order, as far as a bet can tell them apart, and as the counts of certificates.

How often draws can have hit several labels of a set of rivals at once, whichever rivals they are: let V be s labels
outside L, and T the v of them with the fewest votes. T holds no label that has more votes than the one ranked s - v + 1
outside L: those are *ahead*. With B the hits of a draw outside L that are not ahead, {H_T >= l} implies B >= l. So the
number of draws with H_T >= l is at most each of N_v / l, N_v the sum of the votes ranked s - v + 1, ..., s outside L;
the number of draws with B >= l; and M_l / l, M_l the sum of the v largest, over labels not ahead, of the number of
draws that hit it and have B >= l. The last two help where a draw hits several labels outside L.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import Bools, Floats, Ints, check_labels
from multiguard.certify.layers import GAUSSIAN_SHIFT, Shift
from multiguard.certify.rules import Rule, Threshold, TopK
from multiguard.errors import InvalidInputError

# Up to this many labels every subset of L is used (2^12 = 4096 of them).
MOST_SUBSET_LABELS = 12
# Ceilings of `joint` look at every subset of this many labels outside L, those with the most hits.
MOST_SUSPECTS = 6
# Images certified in one evaluation hold about this many numbers at a time, a few tens of megabytes.
_NUMBERS_AT_A_TIME = 1 << 21


# How many labels a test of the order looks at, and how often betting may refuse independent draws.
_LABELS_IN_ORDER, _REFUSED = 10, 1e-9


@dataclass(frozen=True, eq=False)
class Draws:
    """Which labels of L each draw hit, by its index in `patterns`, and for every hit outside L its draw and label.

    `patterns` is (patterns, d); `rival` is the place of a label among the `rivals` = c - d labels outside L.
    """

    patterns: Bools
    pattern: Ints
    draw: Ints
    rival: Ints
    rivals: int

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.pattern)

    @property
    def num_true(self) -> int:
        """d, the number of labels in L."""
        return int(self.patterns.shape[1])


def read_draws(votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int) -> Draws:
    """The draws of one image; L may be empty."""
    hits, true = rule.sets(np.atleast_1d(votes), num_labels), check_labels(labels, num_labels, allow_none=True)
    packed: NDArray[Any] = np.packbits(np.insert(hits[:, true], 0, False, axis=1), axis=1)
    _, first, pattern = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    pattern = pattern.reshape(-1)  # NumPy 2.0.0 gives it a second dimension
    draw, rival = np.nonzero(np.delete(hits, true, axis=1))
    return Draws(hits[first][:, true], pattern, draw, rival, num_labels - len(true))


def hits_from_ranked(ranked: ArrayLike, *, k_prime: int, num_labels: int) -> Bools:
    """The boolean hits (draws, num_labels) of ranked votes: each row marks the first k' labels of its draw.

    Args:
        ranked: (draws, K') integers, the labels of each draw from the highest score down, K' >= k'.
        k_prime: How many labels the base classifier returns, 1 <= k' <= K'.
        num_labels: c, the number of labels there are.

    >>> hits_from_ranked([[2, 0], [1, 2]], k_prime=1, num_labels=3).astype(int)
    array([[0, 0, 1],
           [0, 1, 0]])
    """
    return TopK(1, k_prime).sets(np.asarray(ranked), num_labels)


def fixed_permutation(count: int) -> Ints:
    """(count,) a permutation that depends on the number of draws alone."""
    order: Ints = np.argsort(np.random.PCG64(count).random_raw(count), kind="stable")
    return order


def check_order(votes: NDArray[Any], rule: Rule, num_labels: int) -> None:
    """Raises `InvalidInputError` if the rows can hardly be independent draws in their order (level 1e-9)."""
    if (found := out_of_order(votes, rule, num_labels, _REFUSED)) is not None:
        raise InvalidInputError(
            f"the rows of votes are not in the order in which they were drawn: label {found[0]} has {found[1]} hits in "
            f"{found[2]} runs, which independent draws hardly ever have; the methods 'coupled' and 'betting' need "
            "every draw in its place, so for sorted or counted votes use 'joint'"
        )


def out_of_order(votes: NDArray[Any], rule: Rule, num_labels: int, level: float) -> tuple[int, int, int] | None:
    """A label with its hits and runs that show that rows are not independent draws in their order; None without one.

    Given the rows, every order of independent ones is equally likely. So the number of runs, rows in a row that all hit
    a label or all miss it, has a known distribution: too few or too many have probability `level` at most.
    """
    hits = rule.sets(np.atleast_1d(votes), num_labels)
    counts = hits.sum(axis=0)
    evenest = np.argsort(-np.minimum(counts, len(hits) - counts), kind="stable")[:_LABELS_IN_ORDER]
    for label in evenest.tolist():
        runs = 1 + int(np.count_nonzero(hits[1:, label] != hits[:-1, label]))
        if _runs_tail(runs, int(counts[label]), len(hits)) < level / len(evenest):
            return label, int(counts[label]), runs
    return None


def _runs_tail(runs: int, hits: int, draws: int) -> float:
    """Twice the smaller probability, of at most or of at least this number of runs, if all orders are alike."""
    misses = draws - hits
    if min(hits, misses) == 0:
        return 1.0
    chance = _run_chances(hits, misses)
    return float(2 * min(chance[: runs + 1].sum(), chance[runs:].sum()))


def _run_chances(hits: int, misses: int) -> Floats:
    """(runs,) the probability of 0, 1, 2, ... runs of these hits and misses in random order (Wald and Wolfowitz)."""
    runs = np.arange(2 * min(hits, misses) + 2)
    more, fewer = (runs + 1) // 2, runs // 2
    ways = np.logaddexp(
        _log_choose(hits - 1, more - 1) + _log_choose(misses - 1, fewer - 1),
        _log_choose(hits - 1, fewer - 1) + _log_choose(misses - 1, more - 1),
    )
    chances: Floats = np.exp(ways - _log_choose(hits + misses, np.asarray(hits)))
    return chances


def _log_choose(n: int, k: Ints) -> Floats:
    """The logarithms of binomial coefficients; -inf where k is not in 0..n."""
    inside = (k >= 0) & (k <= n)
    chosen = np.where(inside, k, 0)
    log_factorial = scipy.special.gammaln
    ways = log_factorial(n + 1) - log_factorial(chosen + 1) - log_factorial(n - chosen + 1)
    return np.where(inside, ways, -np.inf)


def rival_mass(chosen: Ints, weights: Floats | None, mass: Floats, labels: Ints, k: int) -> Floats:
    """(sizes, k, k') the most mass that {H_T >= l} can have, by e - 1, v - 1 and l - 1, where |V| = s = k - e + 1.

    It is 0 where v > s, and for a certain size. `chosen` has the k' labels of each draw, `mass` that of each label.
    """
    outside = np.delete(np.arange(len(mass)), labels)
    ranked = outside[np.argsort(-mass[outside], kind="stable")]
    place = np.full(len(mass), -1)
    place[ranked] = np.arange(len(ranked))
    by_rank = _mass_by_rank(place[chosen], weights, mass[ranked], min(k, len(ranked)))
    most = np.zeros((min(len(labels), k), k, chosen.shape[1]))
    for row, s in enumerate(range(k, k - len(most), -1)):
        if s <= len(ranked):
            v = np.arange(1, s + 1)
            most[row, :s] = by_rank[s - v, v - 1]
    return most


def _mass_by_rank(places: Ints, weights: Floats | None, mass: Floats, most: int) -> Floats:
    """(most, most, k') the least of the three bounds, by the s - v labels ranked before T, v - 1 and l - 1.

    `places` (draws, k') are the ranks of hits outside L from 0, negative on L; `mass` that of each label, downwards.
    """
    draws, k_prime = places.shape
    hits = np.flatnonzero(places >= 0)
    draw, place = hits // k_prime, places.ravel()[hits]
    least, deep = np.zeros((most, most, k_prime)), np.empty(0)
    ahead = np.searchsorted(-mass, -mass[:most])
    for before in range(min(most, int(np.count_nonzero(mass)))):
        if before == 0 or ahead[before] > ahead[before - 1]:
            behind = place >= ahead[before]
            draw, place = draw[behind], place[behind]
            deep = _deep_mass(draw, place, draws, weights, (k_prime, most))
        sums = np.cumsum(mass[before:most])[:, None] / np.arange(1, k_prime + 1)
        least[before, : most - before] = np.minimum(sums, deep[: most - before])
    return least


def _deep_mass(draw: Ints, place: Ints, draws: int, weights: Floats | None, shape: tuple[int, int]) -> Floats:
    """(most, k') the lesser of the mass of B >= l and of M_l / l, by v - 1 and l - 1, from the hits not ahead."""
    k_prime, most = shape
    hits = np.bincount(draw, minlength=draws)
    own = None if weights is None else weights[draw]
    whole = _at_least(np.bincount(hits, weights, minlength=k_prime + 1)[:, None])
    width = int(place.max()) + 1
    table = np.bincount(hits[draw] * width + place, own, minlength=(k_prime + 1) * width)
    largest = np.zeros(shape)
    largest[:, :width] = np.sort(_at_least(table.reshape(-1, width)), axis=1)[:, : -most - 1 : -1]
    return np.minimum(whole, np.cumsum(largest, axis=1) / np.arange(1, k_prime + 1)[:, None]).T


def _at_least(mass: Floats | Ints) -> Floats:
    """The mass of at least 1, 2, ... hits, from that of exactly 0, 1, 2, ... hits along the first axis."""
    return np.cumsum(mass[:0:-1], axis=0, dtype=np.float64)[::-1]


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """How often each label, and each combination of the labels in L, was hit: in draws, or as probabilities."""

    draws: float  # the number of draws; 1 where the masses are probabilities
    labels: Ints  # (d,) the indices of L, sorted
    label_mass: Floats  # (num_labels,) of the draws that hit each label
    overlap_mass: Floats  # (k' + 1,) of the draws that hit exactly h labels of L (0..d for the threshold rule)
    pattern_mass: Floats  # (2^d,) of those that hit exactly the labels of L whose bits are set; empty for many labels
    rival_mass: Floats  # for the top-k rule that of `rival_mass`; empty where no layers are counted
    suspects: "VoteCounts | None" = None  # for the threshold rule: the most hit labels outside L in place of L


def count_votes(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    num_labels: int,
    weights: Floats | None = None,
    *,
    layers: bool = True,
) -> VoteCounts:
    """The counts of one image whose votes are such as the rule needs; L may be empty.

    With `weights` the rows are all possible votes, each with its probability. `layers` of rivals are for `joint` alone.
    """
    true = check_labels(labels, num_labels, allow_none=True)
    hits = rule.sets(np.atleast_1d(votes), num_labels)
    if isinstance(rule, TopK):
        counts = _count(hits, true, weights, rule.k_prime)
        chosen = np.nonzero(hits)[1].reshape(len(hits), -1)
        rivals = rival_mass(chosen, weights, counts.label_mass, true, rule.k) if layers else counts.rival_mass
        return replace(counts, rival_mass=rivals)
    counts = _count(hits, true, weights, len(true))
    outside = np.setdiff1d(np.arange(num_labels), true)
    most_hit = outside[np.argsort(-counts.label_mass[outside], kind="stable")][:MOST_SUSPECTS]
    return replace(counts, suspects=_count(hits, most_hit, weights, len(most_hit)))


def _count(hits: Bools, labels: Ints, weights: Floats | None, most: int) -> VoteCounts:
    """The counts of hits (draws, num_labels), at most `most` of them on the labels in a row."""
    few = len(labels) <= MOST_SUBSET_LABELS
    on_labels = hits[:, labels]
    count = on_labels.sum(axis=1)
    patterns = on_labels @ (1 << np.arange(len(labels))) if few else count[:0]
    mass = np.bincount(patterns, weights, minlength=1 << len(labels)) if few else np.empty(0)
    return VoteCounts(
        draws=len(hits) if weights is None else 1,
        labels=labels,
        label_mass=np.asarray(hits.sum(axis=0) if weights is None else weights @ hits, dtype=np.float64),
        overlap_mass=np.bincount(count, weights, minlength=most + 1).astype(np.float64),
        pattern_mass=mass.astype(np.float64),
        rival_mass=np.empty(0),
    )


class Group:
    """Images with equally many true labels d, stacked so that one evaluation serves them all: (images, ...) arrays."""

    def __init__(self, counts: Sequence[VoteCounts], shift: Shift = GAUSSIAN_SHIFT) -> None:
        self.counts, self.images, self.shift = counts, len(counts), shift
        self.draws = np.array([each.draws for each in counts], dtype=np.float64)
        self.labels = np.stack([each.labels for each in counts])
        self.label_mass = np.stack([each.label_mass for each in counts])
        self.mass_on_labels = np.take_along_axis(self.label_mass, self.labels, axis=1)
        self.num_true, self.num_labels = len(counts[0].labels), len(counts[0].label_mass)

    @property
    def suspects(self) -> "Group":
        """The same images with the most hit labels outside L in place of L; for the threshold rule only."""
        return Group([counts.suspects for counts in self.counts if counts.suspects is not None], self.shift)

    def hit_at_least(self, *, outside: bool = False) -> Floats:
        """(images, k') the mass of the draws that hit at least 1, 2, ..., k' labels of L, or outside L, k' in all."""
        overlap = np.stack([counts.overlap_mass for counts in self.counts])
        return np.cumsum(overlap[:, :-1] if outside else overlap[:, :0:-1], axis=1)[:, ::-1]

    def rivals(self, most: int, position: int | None = None) -> Floats:
        """(images, <= most) the largest masses outside L, or of all labels but one of L, downwards."""
        without = self.labels if position is None else self.labels[:, position : position + 1]
        others = self.label_mass.copy()
        np.put_along_axis(others, without, -1.0, axis=1)
        return -np.sort(-others, axis=1)[:, : min(most, self.num_labels - without.shape[1])]

    def uncertain_sizes(self, k: int) -> range:
        """The sizes e that have to be proved; smaller ones are certain, as k - e + 1 > c - d leaves too few rivals."""
        certain = max(0, k - (self.num_labels - self.num_true))
        return range(certain + 1, min(self.num_true, k) + 1)

    def with_certain_sizes(self, proved: Sequence[Floats], k: int) -> Floats:
        """(images, sizes) from the radii of the uncertain sizes: +inf before them, and never rising in e."""
        certain = [np.full(self.images, np.inf)] * (min(self.num_true, k) - len(proved))
        return np.minimum.accumulate(np.stack([*certain, *proved], axis=1), axis=1)


def equal_groups(counts: Sequence[VoteCounts], rule: Rule) -> Iterator[list[int]]:
    """Indices of images with equally many labels in L, few enough at a time for one evaluation."""
    order = sorted(range(len(counts)), key=lambda i: len(counts[i].labels))
    for num_true, same in groupby(order, key=lambda i: len(counts[i].labels)):
        indices, step = list(same), max(1, _NUMBERS_AT_A_TIME // max(1, _numbers(rule, num_true)))
        yield from (indices[start : start + step] for start in range(0, len(indices), step))


def _numbers(rule: Rule, num_true: int) -> int:
    """How many numbers one evaluation takes for an image with d labels."""
    subsets = min(1 << num_true, 4096)
    if isinstance(rule, Threshold):
        return int(subsets * num_true**2 + (1 << MOST_SUSPECTS) * MOST_SUSPECTS**2)
    return (subsets + rule.k) * rule.k_prime * min(num_true, rule.k)
