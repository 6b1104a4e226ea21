"""The paper's Theorem 1 with its corrections: `paper`, `independent` and `jia`.

Size e is certified at R = r sigma if

    max( down(p_{a_e}),  max_{u=1..d-e+1} (k'/u) down(p_{A_u} / k') )
        >  min( up(p_{b_s}),  min_{v=1..s} (k'/v) up(p_{B_v} / k') ),      s = k - e + 1,

where p_{a_1} >= p_{a_2} >= ... are the lower bounds over L, p_{b_1} >= p_{b_2} >= ... the upper bounds over the other
labels, p_{A_u} the sum of p_{a_e} .. p_{a_{e+u-1}}, and p_{B_v} the sum of p_{b_{s-v+1}} .. p_{b_s}, but at most k'
less the sum of all lower bounds over L. Every bound has level alpha / c, so all of them hold at once with probability
at least 1 - alpha, and with them every size and every radius.
"""

from collections.abc import Sequence

import numpy as np

from multiguard.certify.arguments import Floats
from multiguard.certify.bounds import Bounds
from multiguard.certify.draws import Group
from multiguard.certify.layers import Layers, Shift, crossing
from multiguard.certify.rules import TopK


def paper_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds, *, second_terms: bool = True) -> Floats:
    """The r, (images, sizes), at which Theorem 1 certifies each size; `second_terms=False` is `independent`."""
    level = alpha / group.num_labels
    draws = group.draws[:, None]
    lower = -np.sort(-bounds.lower(group.mass_on_labels, draws, level), axis=1)
    upper = bounds.upper(group.rivals(rule.k), draws, level)
    cap = rule.k_prime - lower.sum(axis=1)
    options = cap, rule.k_prime, group.shift, second_terms
    sides = [_sides(lower[:, e - 1 :], upper[:, : rule.k - e + 1], *options) for e in group.uncertain_sizes(rule.k)]
    return group.with_certain_sizes(_solve(sides, group.shift), rule.k)


def jia_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds) -> Floats:
    """The r, (images, sizes), up to which that many labels of L each stay among the top k on their own.

    Each label is certified against the top k of all others, the rest of L included: Theorem 1 with L = {label}.
    """
    if rule.k > group.num_labels - 1:
        return np.full((group.images, min(group.num_true, rule.k)), np.inf)
    level = alpha / group.num_labels
    draws = group.draws[:, None]
    lower = bounds.lower(group.mass_on_labels, draws, level)
    sides = []
    for i, own in enumerate(np.split(lower, group.num_true, axis=1)):
        upper = bounds.upper(group.rivals_of(i, rule.k), draws, level)
        sides.append(_sides(own, upper, rule.k_prime - own[:, 0], rule.k_prime, group.shift))
    return -np.sort(-np.stack(_solve(sides, group.shift), axis=1), axis=1)[:, : min(group.num_true, rule.k)]


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
