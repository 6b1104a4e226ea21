"""The certificates of counted votes: Theorem 1 of the paper, corrected, and the joint one, which needs the draws.

Theorem 1 (`paper`, `independent`, `jia`) certifies size e at R = r sigma if

    max( down(p_{a_e}),  max_{u=1..d-e+1} (k'/u) down(p_{A_u} / k') )
        >  min( up(p_{b_s}),  min_{v=1..s} (k'/v) up(p_{B_v} / k') ),      s = k - e + 1,

where p_{a_1} >= p_{a_2} >= ... are the lower bounds over L, p_{b_1} >= p_{b_2} >= ... the upper bounds over the other
labels, p_{A_u} the sum of p_{a_e} .. p_{a_{e+u-1}}, and p_{B_v} the sum of p_{b_{s-v+1}} .. p_{b_s}, but at most k'
less the sum of all lower bounds over L. Every bound has level alpha / c, so all of them hold at once with probability
at least 1 - alpha, and with them every size and every radius.

The joint certificate uses what the votes prove draw by draw, beyond their c averages.

If fewer than e labels of L survive, some U in L with |U| = d - e + 1 is out and some V outside L with |V| = s =
k - e + 1 is in, so max_U p* <= min_V p*. Size e is certified where, for every such pair, a lower bound of the left
exceeds an upper bound of the right:

    min over U of max over S in U of A(S)  >  B_s
    A(S) = (1/|S|) sum_{l=1..min(k',|S|)} down(q_{S,l}),    q_{S,l} <= Pr(at least l labels of S are hit)
    B_s  = min over v=1..s of (1/v) sum_{l=1..min(k',v)} up(t_{v,l})

t_{v,l} >= Pr(at least l labels are hit of the v labels of V with the fewest votes), for every V (`draws.py`).

Only one pair has to be refuted wrongly for a false claim, and which pair does not depend on the votes. So the error
alpha is divided among the bounds of one pair, not over all labels.

The same for the floors and ceilings of g_t = {i : p_i >= t}: how many labels of L stay in, how many others come in.

If fewer than e labels of L are in, some U in L with |U| = d - e + 1 is out, so max_U p* < t. If more than m others are
in, some V outside L with |V| = m + 1 is in, so min_V p* >= t. They are refuted where, for every U and every V,

    max over S in U of  (1/|S|) sum_{l=1..|S|} down(q_{S,l})  >  t,      q_{S,l} <= Pr(at least l labels of S are hit)
    min over T in V of  (1/|T|) sum_{l=1..|T|} up(x_{T,l})    <  t,      x_{T,l} >= Pr(at least l labels of T are hit)

Most of alpha bounds each label by itself, once for all floors and all ceilings. The rest goes to larger S and T, for
each floor and ceiling again, and is divided inside one U or one V only. `docs/theory.md` has the proof.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import comb

import numpy as np

from multiguard.certify.arguments import Floats
from multiguard.certify.bounds import Bounds
from multiguard.certify.draws import MOST_SUBSET_LABELS, Group
from multiguard.certify.layers import Layers, Shift, crossing, fill
from multiguard.certify.rules import Threshold, TopK

# How alpha of `joint` is divided, fixed beforehand: bounds over U, bounds over V, and the layers of L that cap these.
FRACTION_U, FRACTION_V, FRACTION_CAP = 0.50, 0.40, 0.10
# The fractions of the alpha of floors and of ceilings for single labels, chosen on half of the COCO images.
SINGLES_IN, SINGLES_OUT = 0.9, 0.7
# Alpha divided among more bounds than this would be lost in the smallest doubles, and prove nothing anyway.
_MOST_EVENTS = 10**80
Bound = Callable[[Floats, Floats, Floats], Floats]  # of masses among draws, each failing with a level
# From |U| and the number of layers of L the levels of the bound of each of the labels and of each layer.
Spend = Callable[[int, int], tuple[float, float]]


def paper_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds, *, second_terms: bool = True) -> Floats:
    """The r, (images, sizes), at which Theorem 1 certifies each size; `second_terms=False` is `independent`."""
    level, draws = alpha / group.num_labels, group.draws[:, None]
    lower = -np.sort(-bounds.lower(group.mass_on_labels, draws, level), axis=1)
    upper = bounds.upper(group.rivals(rule.k), draws, level)
    options = rule.k_prime - lower.sum(axis=1), rule.k_prime, group.shift, second_terms
    sides = [_sides(lower[:, e - 1 :], upper[:, : rule.k - e + 1], *options) for e in group.uncertain_sizes(rule.k)]
    return group.with_certain_sizes(_solve(sides, group.shift), rule.k)


def jia_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds) -> Floats:
    """The r, (images, sizes), up to which so many labels of L stay each alone: Theorem 1 with L = {label}."""
    sizes = min(group.num_true, rule.k)
    if rule.k > group.num_labels - 1:
        return np.full((group.images, sizes), np.inf)
    level, draws = alpha / group.num_labels, group.draws[:, None]
    lower = bounds.lower(group.mass_on_labels, draws, level)
    sides = []
    for i, own in enumerate(np.split(lower, group.num_true, axis=1)):
        upper = bounds.upper(group.rivals(rule.k, i), draws, level)
        sides.append(_sides(own, upper, rule.k_prime - own[:, 0], rule.k_prime, group.shift))
    return -np.sort(-np.stack(_solve(sides, group.shift), axis=1), axis=1)[:, :sizes]


def _solve(sides: Sequence[tuple[Layers, Layers]], shift: Shift) -> list[Floats]:
    """The crossing of each pair of sides, all of them found together."""
    if not sides:
        return []
    left = Layers.stack([left for left, _ in sides], absent=0.0)
    right = Layers.stack([right for _, right in sides], absent=np.inf)
    r = crossing(lambda r: left.moved(-r).max(axis=1), lambda r: right.moved(r).min(axis=1), left.rows, shift)
    return np.split(r, len(sides))


def _sides(
    lower: Floats, upper: Floats, cap: Floats, k_prime: int, shift: Shift, second_terms: bool = True
) -> tuple[Layers, Layers]:
    """Both sides for one size, from the sorted bounds (images, u) of U and (images, v) of V."""

    def side(ordered: Floats, single: Floats, cap: Floats) -> Layers:
        """The single term, and behind it the joint terms: sums of the first 1, 2, ... bounds shared by k' layers."""
        if not second_terms:
            return Layers.of(single[:, :, None], np.ones(1), shift)
        sums = np.minimum(np.cumsum(ordered, axis=1), cap[:, None])
        probabilities = np.concatenate([single, np.clip(sums / k_prime, 0.0, 1.0)], axis=1)
        weights = np.concatenate([[1.0], k_prime / np.arange(1, ordered.shape[1] + 1)])
        return Layers.of(probabilities[:, :, None], weights, shift)

    return side(lower, lower[:, :1], np.full_like(cap, k_prime)), side(upper[:, ::-1], upper[:, -1:], cap)


def joint_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds) -> Floats:
    """The r, (images, sizes), at which the joint certificate proves each size; alpha is for those that can fail."""
    sizes = group.uncertain_sizes(rule.k)
    if not sizes:
        return group.with_certain_sizes([], rule.k)
    one_size = alpha / len(sizes)
    spent = FRACTION_U * one_size

    def spend(out: int, layers: int) -> tuple[float, float]:
        half = spent / (2 if layers else 1)
        return half / out, half / max(layers, 1)

    left = _weakest_out(group, sizes, rule.k_prime, lambda out: levels(spent, out, rule.k_prime), spend, bounds)
    right = Layers.stack([_right_side(group, e, rule, one_size, bounds) for e in sizes], absent=np.inf)
    r = crossing(left, lambda r: right.moved(r).min(axis=1), right.rows, group.shift)
    return group.with_certain_sizes(np.split(r, len(sizes)), rule.k)


def _right_side(group: Group, e: int, rule: TopK, alpha: float, bounds: Bounds) -> Layers:
    """The terms of B_s: for each v the layers of the v least voted labels of the worst V, filled up evenly."""
    s, k_prime, draws = rule.k - e + 1, rule.k_prime, group.draws[:, None]
    singles = bounds.upper(group.rivals(s), draws, FRACTION_V * alpha / s**2)
    layers, sizes = min(k_prime, s), np.arange(1, s + 1)
    outside = bounds.upper(group.hit_at_least(outside=True)[:, :layers], draws, FRACTION_CAP * alpha / layers)
    level = levels(FRACTION_V * alpha, s, k_prime)
    used = level > 0
    caps = np.repeat(outside[:, None, :], s, axis=1)
    seen = np.stack([counts.rival_mass[e - 1] for counts in group.counts])[:, :s, :layers][:, used]
    counted = bounds.upper(seen, draws[:, :, None], level[used, None])
    caps[:, used] = np.minimum(caps[:, used], counted)
    present = np.arange(1, layers + 1) <= sizes[:, None]
    caps[:, ~present] = 0.0
    return Layers.of(fill(caps, np.cumsum(singles[:, ::-1], axis=1)), 1 / sizes, group.shift, present)


def _weakest_out(
    group: Group, sizes: range, k_prime: int, few: Callable[[int], Floats], spend: Spend, bounds: Bounds
) -> Callable[[Floats], Floats]:
    """A function of r: for each size e the least, over U in L with |U| = d - e + 1, lower bound of max over U of p*.

    A draw hits `k_prime` of the d >= 1 labels at most; `few` are the levels of subsets of one U.
    """
    if group.num_true <= MOST_SUBSET_LABELS:
        each = [few(group.num_true - e + 1) for e in sizes]
        return SubsetSide(group, k_prime, each, bounds.lower, is_upper=False)
    return _overlap_side(group, sizes, k_prime, spend, bounds)


class SubsetSide:
    """From r for each size the worst, over all sets of that many labels of the groups' L, of the best subset's bound.

    The bound is of the mean of p* over a subset, from layers of at most `depth` hits. `each` has the levels of subsets
    of 1, 2, ... labels, as many as the set has. Rows are sizes by images.
    """

    def __init__(self, group: Group, depth: int, each: Sequence[Floats], bound: Bound, *, is_upper: bool) -> None:
        self.members, self.is_upper = np.bitwise_count(np.arange(1 << group.num_true)), is_upper
        self.sizes, mass = [len(own) for own in each], layer_mass(group, depth)
        bounds = np.full((len(each), *mass.shape), float(is_upper))
        for row, own in zip(bounds, each, strict=True):
            inside = np.flatnonzero((self.members >= 1) & (self.members <= len(own)))
            level = own[self.members[inside] - 1]
            row[:, inside] = bound(mass[:, inside], group.draws[:, None, None], level[:, None])
        present = np.arange(1, mass.shape[2] + 1) <= self.members[:, None]
        flat = bounds.reshape(-1, *mass.shape[1:])
        self.layers = Layers.of(flat, 1 / np.maximum(self.members, 1), group.shift, present)

    def __call__(self, r: Floats) -> Floats:
        """(rows,) the bound at each row's r."""
        better, worst = (np.minimum, np.maximum) if self.is_upper else (np.maximum, np.minimum)
        means = self.layers.moved(r if self.is_upper else -r)
        means[:, 0] = np.inf if self.is_upper else -np.inf
        best = best_within(means, better).reshape(len(self.sizes), -1, len(self.members))
        each = (worst.reduce(row[:, self.members == size], axis=1) for row, size in zip(best, self.sizes, strict=True))
        return np.concatenate(list(each))


def _overlap_side(group: Group, sizes: range, k_prime: int, spend: Spend, bounds: Bounds) -> Callable[[Floats], Floats]:
    """From r a lower bound of max over U of p*, where L has too many labels to try every subset.

    Single labels are combined as in Theorem 1. And since a draw that hits h labels of L hits at least h - (e - 1) of U,
    the layers of L from e on serve every U.
    """

    def terms(e: int) -> tuple[Layers, Layers]:
        out, deep = group.num_true - e + 1, max(0, min(k_prime, group.num_true) - e + 1)
        each_label, each_layer = spend(out, deep)
        draws, taken = group.draws[:, None], np.arange(1, out + 1)
        single = -np.sort(-bounds.lower(group.mass_on_labels, draws, each_label), axis=1)[:, e - 1 :]
        shared = np.minimum(taken, k_prime)
        means = np.minimum(np.cumsum(single, axis=1) / shared, 1.0)
        overlap = bounds.lower(group.hit_at_least()[:, e - 1 :], draws, each_layer)
        singles = Layers.of(means[:, :, None], shared / taken, group.shift)
        return singles, Layers.of(overlap[:, None, :], np.array([1 / out]), group.shift)

    singles, overlaps = (Layers.stack(each, absent=0.0) for each in zip(*map(terms, sizes), strict=True))
    return lambda r: np.maximum(singles.moved(-r).max(axis=1), overlaps.moved(-r)[:, 0])


def levels(alpha: float, members: int, k_prime: int, smallest: int = 1) -> Floats:
    """The level of each bound on a subset of `smallest`, ..., `members` labels, equal parts; 0 if too small."""
    sizes = range(smallest, members + 1)
    events = [len(sizes) * comb(members, size) * min(k_prime, size) for size in sizes]
    return np.array([alpha / count if count < _MOST_EVENTS else 0.0 for count in events])


def layer_mass(group: Group, k_prime: int) -> Floats:
    """(images, 2^d, layers) the mass of the draws that hit at least l labels of each subset of L, made bit by bit."""
    images, labels = group.images, group.num_true
    layers = min(k_prime, labels)
    mass = np.zeros((images, 1 << labels, layers + 1))
    mass[:, :, 0] = np.stack([counts.pattern_mass for counts in group.counts])
    for bit in range(labels):
        halves = mass.reshape(images, -1, 2, 1 << bit, layers + 1)
        missed, hit = halves[:, :, 0].copy(), halves[:, :, 1].copy()
        halves[:, :, 0] += hit
        halves[:, :, 1] = missed
        halves[:, :, 1, :, 1:] += hit[..., :-1]
    return np.cumsum(mass[:, :, :0:-1], axis=2)[:, :, ::-1]


def best_within(values: Floats, better: np.ufunc) -> Floats:
    """(rows, 2^d) the best value among the subsets of each set, overwriting `values`; better: maximum or minimum."""
    rows, sets = values.shape
    for bit in range(sets.bit_length() - 1):
        halves = values.reshape(rows, -1, 2, 1 << bit)
        better(halves[:, :, 0], halves[:, :, 1], out=halves[:, :, 1])
    return values


def joint_floors(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, d) the r up to which at least 1, 2, ..., d labels of L stay in, all at once with 1 - alpha."""
    d = group.num_true
    depth = rule.hits_at_most(d)
    once = SINGLES_IN * alpha / d, (1 - SINGLES_IN) * alpha / depth
    few = partial(floor_levels, alpha, d, depth)
    kept = _weakest_out(group, range(1, d + 1), depth, few, lambda out, layers: once, bounds)
    r = crossing(kept, lambda r: np.full_like(r, rule.t), group.images * d, group.shift).reshape(d, -1).T
    return np.maximum.accumulate(r[:, ::-1], axis=1)[:, ::-1]


def floor_levels(alpha: float, labels: int, depth: int, out: int) -> Floats:
    """(out,) the level of each bound on a subset of 1, 2, ..., `out` labels of L, so that all floors spend alpha.

    Each label has its bound once for all floors; the rest is for the floors e < d, then for the sizes of subsets.
    """
    if labels == 1:
        return np.array([alpha])
    one_floor = (1 - SINGLES_IN) * alpha / (labels - 1)
    return np.append(SINGLES_IN * alpha / labels, levels(one_floor, out, depth, smallest=2))


def independent_floors(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, d) as `joint_floors`, each label by itself."""
    lower = bounds.lower(group.mass_on_labels, group.draws[:, None], alpha / group.num_true)
    left = Layers.of(lower.reshape(-1, 1, 1), np.ones(1), group.shift)
    r = crossing(lambda r: left.moved(-r)[:, 0], lambda r: np.full_like(r, rule.t), lower.size, group.shift)
    return -np.sort(-r.reshape(lower.shape), axis=1)


def joint_ceilings(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, c - d) the r up to which at most 0, 1, ... labels outside L are in, all at once with 1 - alpha."""
    suspects, rivals = group.suspects, group.num_labels - group.num_true
    together = suspects.num_true
    depth = rule.hits_at_most(together)
    single, each = _ceiling_levels(alpha, rivals, together, depth)
    among = SubsetSide(suspects, depth, each, bounds.upper, is_upper=True)
    other = _no_suspect(group, [level[0] for level in each], bounds)
    few = crossing(
        lambda r: np.full_like(r, rule.t),
        lambda r: np.maximum(among(r), other.moved(r)[:, 0]),
        group.images * together,
        group.shift,
    )
    upper = bounds.upper(group.rivals(rivals)[:, together:], group.draws[:, None], single)
    r = np.concatenate([few.reshape(together, -1).T, _stays_out(upper, rule.t, group.shift)], axis=1)
    return np.maximum.accumulate(r, axis=1)


def independent_ceilings(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, c - d) as `joint_ceilings`, each label by itself."""
    rivals = group.num_labels - group.num_true
    upper = bounds.upper(group.rivals(rivals), group.draws[:, None], alpha / rivals)
    return _stays_out(upper, rule.t, group.shift)


def _stays_out(upper: Floats, t: float, shift: Shift) -> Floats:
    """The r up to which up(upper) < t, in the shape of `upper`."""
    right = Layers.of(upper.reshape(-1, 1, 1), np.ones(1), shift)
    r = crossing(lambda r: np.full_like(r, t), lambda r: right.moved(r)[:, 0], upper.size, shift)
    return r.reshape(upper.shape)


def _ceiling_levels(alpha: float, rivals: int, together: int, depth: int) -> tuple[float, list[Floats]]:
    """Levels of the bounds outside L, so that all ceilings together spend alpha.

    That of each single label, once for all; and for each m < `together`, dividing the rest like 1/2, 1/6, 1/12, ...,
    those of subsets of 1, ..., m + 1 labels of one V. A single label has the better of its two.
    """
    if rivals == 1:
        return alpha, [np.array([alpha])]
    single, sizes = SINGLES_OUT * alpha / rivals, np.arange(1, together + 1)
    parts = (1 + 1 / together) / (sizes * (sizes + 1))
    each = [levels((1 - SINGLES_OUT) * alpha * part, size, depth) for size, part in enumerate(parts, start=1)]
    return single, [np.append(max(single, level[0]), level[1:]) for level in each]


def _no_suspect(group: Group, each: Sequence[float], bounds: Bounds) -> Layers:
    """The most hit label that is no suspect: a V that is not among the suspects alone holds one at most as probable."""
    together = len(each)
    mass, draws = group.rivals(together + 1)[:, together:], group.draws[:, None]
    if mass.shape[1] == 0:
        none = np.zeros((1, 1), dtype=np.bool_)
        return Layers.of(np.zeros((group.images * together, 1, 1)), np.ones(1), group.shift, none)
    singles = [bounds.upper(mass, draws, level) for level in each]
    return Layers.of(np.concatenate(singles)[:, :, None], np.ones(1), group.shift)
