"""From the votes of images to the few counts that certificates are made of.

How often draws can have hit several labels of a set of rivals at once, whichever rivals they are:
Let V be s labels outside L, and T the v of them with the fewest votes. The s - v others of V have at least as many, so
T holds no label that has more votes than the one ranked s - v + 1 outside L: those labels are *ahead*. With B the hits
of a draw outside L that are not ahead, {H_T >= l} implies B >= l. So the number of draws with H_T >= l is at most each
of

    N_v / l,    N_v the sum of the votes ranked s - v + 1, ..., s outside L;
    the number of draws with B >= l;
    M_l / l,    M_l the sum of the v largest, over labels not ahead, of the number of draws that hit it and have B >= l.

The last two need the draws themselves, not their averages, and help where a draw hits several labels outside L.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import Bools, Floats, Ints, check_labels
from multiguard.certify.draws import check_votes
from multiguard.certify.layers import GAUSSIAN_SHIFT, Shift
from multiguard.certify.rules import Rule, Threshold, TopK


def rival_mass(chosen: Ints, weights: Floats | None, mass: Floats, labels: Ints, k: int) -> Floats:
    """(sizes, k, k') the most mass that {H_T >= l} can have, by e - 1, v - 1 and l - 1, where |V| = s = k - e + 1.

    It is 0 where v > s, and for a size that is certain because only s - 1 labels or fewer are outside L.

    Args:
        chosen: (draws, k') the labels of each draw.
        weights: (draws,) the probability of each row, where the rows are all possible votes.
        mass: (num_labels,) the mass of the draws that hit each label.
        labels: (d,) the labels of L.
        k: The number of labels that the smoothed classifier returns.
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

    Args:
        places: (draws, k') the rank of each hit outside L, from 0; negative for a hit on L.
        weights: As in `rival_mass`.
        mass: (rivals,) the mass of the labels outside L, downwards.
        most: The largest s.
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


# Up to this many labels every subset of L is used (2^12 = 4096 of them).
MOST_SUBSET_LABELS = 12
# Ceilings of `joint` look at every subset of this many labels outside L, those with the most hits.
MOST_SUSPECTS = 6
# Images certified in one evaluation hold about this many numbers at a time, a few tens of megabytes.
_NUMBERS_AT_A_TIME = 1 << 21


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """How often each label, and each combination of the labels in L, was hit in the draws of one image.

    Masses are counts of draws, or probabilities where the vote distribution is known exactly (then `draws` is 1).

    Attributes:
        draws: The number of draws.
        labels: (d,) the indices of L, sorted.
        label_mass: (num_labels,) the mass of the draws that hit each label.
        overlap_mass: (k' + 1,) the mass of the draws that hit exactly h labels of L, h = 0..k' (0..d for sets of any
            size).
        pattern_mass: (2^d,) the mass of the draws that hit exactly the labels of L whose bits are set; bit i stands
            for labels[i]. Empty where d exceeds `MOST_SUBSET_LABELS`.
        rival_mass: (min(d, k), k, k') for the top-k rule the most mass of the draws that hit at least l labels of T, as
            `rival_mass` has it; empty for sets of any size, and where no layers are counted.
        suspects: For the threshold rule the same counts with the most hit labels outside L in place of L.
    """

    draws: float
    labels: Ints
    label_mass: Floats
    overlap_mass: Floats
    pattern_mass: Floats
    rival_mass: Floats
    suspects: "VoteCounts | None" = None


def count_votes(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    num_labels: int,
    weights: Floats | None = None,
    *,
    layers: bool = True,
) -> VoteCounts:
    """The counts of one image, after a check that the votes are such as the rule needs; L may be empty.

    With `weights`, (rows,), the rows are all possible votes, each with its probability, instead of draws. Without
    `layers`, which `joint` alone uses, those of the rivals are not counted.
    """
    given, true = np.asarray(votes), check_labels(labels, num_labels, allow_none=True)
    checked = check_votes(given, rule, num_labels)
    if isinstance(rule, Threshold):
        counts = _count_sets(checked, true, weights)
        outside = np.setdiff1d(np.arange(num_labels), true)
        most_hit = outside[np.argsort(-counts.label_mass[outside], kind="stable")][:MOST_SUSPECTS]
        return replace(counts, suspects=_count_sets(checked, most_hit, weights))
    return _count_ranked(checked, true, rule, num_labels, weights, layers)


def _count_ranked(
    ranked: NDArray[np.integer], labels: Ints, rule: TopK, num_labels: int, weights: Floats | None, layers: bool
) -> VoteCounts:
    """The counts of ranked votes (draws, K'), of which the first k' of each row count."""
    k_prime = rule.k_prime
    chosen = ranked[:, :k_prime].astype(np.intp)
    few = len(labels) <= MOST_SUBSET_LABELS
    marks = np.zeros(num_labels, np.int64)
    marks[labels] = 1 << np.arange(len(labels)) if few else 1
    pattern = marks[chosen].sum(axis=1)
    patterns = np.bincount(pattern, weights, minlength=1 << len(labels) if few else k_prime + 1).astype(np.float64)
    overlap = patterns if not few else np.bincount(np.bitwise_count(np.arange(len(patterns))), patterns, k_prime + 1)
    each = None if weights is None else np.repeat(weights, k_prime)
    mass = np.bincount(chosen.ravel(), each, minlength=num_labels).astype(np.float64)
    return VoteCounts(
        draws=len(ranked) if weights is None else 1,
        labels=labels,
        label_mass=mass,
        overlap_mass=overlap[: k_prime + 1].astype(np.float64),
        pattern_mass=patterns if few else np.empty(0),
        rival_mass=rival_mass(chosen, weights, mass, labels, rule.k) if layers else np.empty(0),
    )


def _count_sets(hits: Bools, labels: Ints, weights: Floats | None) -> VoteCounts:
    """The counts of boolean votes (draws, num_labels), any number of hits per row."""
    few = len(labels) <= MOST_SUBSET_LABELS
    on_labels = hits[:, labels]
    count = on_labels.sum(axis=1)
    patterns = on_labels @ (1 << np.arange(len(labels))) if few else count[:0]
    return VoteCounts(
        draws=len(hits) if weights is None else 1,
        labels=labels,
        label_mass=np.asarray(hits.sum(axis=0) if weights is None else weights @ hits, dtype=np.float64),
        overlap_mass=np.bincount(count, weights, minlength=len(labels) + 1).astype(np.float64),
        pattern_mass=np.bincount(patterns, weights, minlength=1 << len(labels)).astype(np.float64)
        if few
        else np.empty(0),
        rival_mass=np.empty(0),
    )


class Group:
    """Images with equally many true labels, stacked so that one evaluation serves them all.

    Attributes:
        counts: The counts of each image.
        shift: How a perturbation moves the probabilities of their noise.
        images: How many images there are.
        num_true: d, the number of labels in the L of each image.
        num_labels: c, the number of labels there are.
        draws: (images,) the number of draws of each image.
        labels: (images, d) the labels of each L.
        label_mass: (images, c) the mass of each label.
        mass_on_labels: (images, d) the mass of each label of L.
    """

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

    def rivals(self, most: int) -> Floats:
        """(images, <= most) the largest masses outside L, downwards."""
        return self._largest(self.labels, most)

    def rival_layers(self, e: int) -> Floats:
        """(images, k, k') the most mass of the layers of T, by v - 1 and l - 1, for size e; for the top-k rule only."""
        return np.stack([counts.rival_mass[e - 1] for counts in self.counts])

    def rivals_of(self, position: int, most: int) -> Floats:
        """(images, <= most) the largest masses of all labels but the one at this position of L, downwards."""
        return self._largest(self.labels[:, position : position + 1], most)

    def sizes(self, k: int) -> int:
        """The largest certified size there can be."""
        return min(self.num_true, k)

    def uncertain_sizes(self, k: int) -> range:
        """The sizes e that have to be proved; smaller ones are certain, as k - e + 1 > c - d leaves too few rivals."""
        certain = max(0, k - (self.num_labels - self.num_true))
        return range(certain + 1, self.sizes(k) + 1)

    def with_certain_sizes(self, proved: Sequence[Floats], k: int) -> Floats:
        """(images, sizes) from the radii of the uncertain sizes: +inf before them, and never rising in e."""
        certain = [np.full(self.images, np.inf)] * (self.sizes(k) - len(proved))
        return np.minimum.accumulate(np.stack([*certain, *proved], axis=1), axis=1)

    def _largest(self, without: Ints, most: int) -> Floats:
        others = self.label_mass.copy()
        np.put_along_axis(others, without, -1.0, axis=1)
        count = min(most, self.num_labels - without.shape[1])
        return -np.sort(-others, axis=1)[:, :count]


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
