"""The joint certificate: what the votes prove draw by draw, beyond their c averages.

If fewer than e labels of L survive, some U in L with |U| = d - e + 1 is out and some V outside L with |V| = s =
k - e + 1 is in, so max_U p* <= min_V p*. Size e is certified where, for every such pair, a lower bound of the left
exceeds an upper bound of the right:

    min over U of max over S in U of A(S)  >  B_s
    A(S) = (1/|S|) sum_{l=1..min(k',|S|)} down(q_{S,l}),    q_{S,l} <= Pr(at least l labels of S are hit)
    B_s  = min over v=1..s of (1/v) sum_{l=1..min(k',v)} up(t_{v,l})

t_{v,l} >= Pr(at least l labels are hit of the v labels of V with the fewest votes), for every V (`rivals.py`).

Only one pair has to be refuted wrongly for a false claim, and which pair does not depend on the votes. So the error
alpha is divided among the bounds of one pair, not over all labels. `docs/theory.md` has the proof.
"""

import numpy as np

from multiguard.certify.arrays import Floats
from multiguard.certify.bounds import Bounds
from multiguard.certify.counts import Group
from multiguard.certify.layers import Layers, crossing, fill
from multiguard.certify.rules import TopK
from multiguard.certify.subsets import WithinU, at_least_elsewhere, levels, weakest_out

# How alpha is divided, fixed beforehand: bounds over U, bounds over V, and the layers of L that cap the latter.
FRACTION_U, FRACTION_V, FRACTION_CAP = 0.50, 0.40, 0.10


def joint_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds) -> Floats:
    """The r, (images, sizes), at which the joint certificate proves each size, all sizes at once.

    Only the sizes that are not certain can be claimed falsely, so alpha is divided among these.
    """
    sizes = group.uncertain_sizes(rule.k)
    if not sizes:
        return group.with_certain_sizes([], rule.k)
    one_size = alpha / len(sizes)
    left = weakest_out(group, sizes, rule.k_prime, WithinU(FRACTION_U * one_size, rule.k_prime), bounds)
    right = Layers.stack([_right_side(group, e, rule, one_size, bounds) for e in sizes], absent=np.inf)
    r = crossing(left, lambda r: right.moved(r).min(axis=1), right.rows, group.shift)
    return group.with_certain_sizes(np.split(r, len(sizes)), rule.k)


def _right_side(group: Group, e: int, rule: TopK, alpha: float, bounds: Bounds) -> Layers:
    """The terms of B_s: for each v the layers of the v least voted labels of the worst V, filled up evenly."""
    s, k_prime = rule.k - e + 1, rule.k_prime
    draws = group.draws[:, None]
    singles = bounds.upper(group.rivals(s), draws, FRACTION_V * alpha / s**2)
    layers = min(k_prime, s)
    depth = np.arange(1, layers + 1)
    elsewhere = at_least_elsewhere(group)[:, :layers]
    outside = bounds.upper(elsewhere, draws, FRACTION_CAP * alpha / layers)
    sums = np.cumsum(singles[:, ::-1], axis=1)
    level = levels(FRACTION_V * alpha, s, k_prime)
    used = level > 0
    caps = np.repeat(outside[:, None, :], s, axis=1)
    seen = group.rival_layers(e)[:, :s, :layers][:, used]
    counted = bounds.upper(seen, draws[:, :, None], level[used, None])
    caps[:, used] = np.minimum(caps[:, used], counted)
    sizes = np.arange(1, s + 1)
    present = depth <= sizes[:, None]
    caps[:, ~present] = 0.0
    return Layers.of(fill(caps, sums), 1 / sizes, group.shift, present)
