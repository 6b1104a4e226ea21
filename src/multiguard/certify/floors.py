"""Floors and ceilings of g_t = {i : p_i >= t}: how many labels of L stay in, how many others come in.

If fewer than e labels of L are in, some U in L with |U| = d - e + 1 is out, so max_U p* < t. If more than m others are
in, some V outside L with |V| = m + 1 is in, so min_V p* >= t. They are refuted where, for every U and every V,

    max over S in U of  (1/|S|) sum_{l=1..|S|} down(q_{S,l})  >  t,      q_{S,l} <= Pr(at least l labels of S are hit)
    min over T in V of  (1/|T|) sum_{l=1..|T|} up(x_{T,l})    <  t,      x_{T,l} >= Pr(at least l labels of T are hit)

Most of alpha bounds each label by itself, once for all floors and all ceilings. The rest goes to larger S and T, for
each floor and ceiling again, and is divided inside one U or one V only. `docs/theory.md` has the proof.
"""

from collections.abc import Sequence

import numpy as np

from multiguard.certify.arrays import Floats
from multiguard.certify.bounds import Bounds
from multiguard.certify.counts import Group
from multiguard.certify.joint import AcrossFloors, best_within, layer_mass, levels, subset_sizes, weakest_out
from multiguard.certify.layers import Layers, Shift, crossing
from multiguard.certify.rules import Threshold

# The fraction of the ceilings' alpha for single labels, chosen on half of the COCO images.
SINGLES_OUT = 0.7


def joint_floors(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, d) the r up to which at least 1, 2, ..., d labels of L stay in, all at once with 1 - alpha."""
    d = group.num_true
    kept = weakest_out(group, range(1, d + 1), d, AcrossFloors(alpha, d), bounds)
    r = crossing(kept, lambda r: np.full(len(r), rule.t), group.images * d, group.shift).reshape(d, -1).T
    return np.maximum.accumulate(r[:, ::-1], axis=1)[:, ::-1]


def independent_floors(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, d) as `joint_floors`, each label by itself."""
    lower = bounds.lower(group.mass_on_labels, group.draws[:, None], alpha / group.num_true)
    left = Layers.of(lower.reshape(-1, 1, 1), np.ones(1), group.shift)
    r = crossing(lambda r: left.moved(-r)[:, 0], lambda r: np.full(len(r), rule.t), lower.size, group.shift)
    return -np.sort(-r.reshape(lower.shape), axis=1)


def joint_ceilings(group: Group, rule: Threshold, alpha: float, bounds: Bounds) -> Floats:
    """(images, c - d) the r up to which at most 0, 1, ... labels outside L are in, all at once with 1 - alpha."""
    suspects, rivals = group.suspects, group.num_labels - group.num_true
    together = suspects.num_true
    single, each = _ceiling_levels(alpha, rivals, together)
    among, beside = _SuspectSide(suspects, each, bounds), _beside(group, [level[0] for level in each], bounds)
    few = crossing(
        lambda r: np.full(len(r), rule.t),
        lambda r: np.maximum(among(r), beside.moved(r)[:, 0]),
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
    r = crossing(lambda r: np.full(len(r), t), lambda r: right.moved(r)[:, 0], upper.size, shift)
    return r.reshape(upper.shape)


def _ceiling_levels(alpha: float, rivals: int, together: int) -> tuple[float, list[Floats]]:
    """Levels of the bounds outside L, so that all ceilings together spend alpha.

    The ceilings m < `together` divide what single labels leave like 1/2, 1/6, 1/12, ...

    Returns:
        The level of each single label, once for all ceilings; and for each m < `together` those of the bounds on a
        subset of 1, 2, ..., m + 1 labels of one V, where a single label has the better of its two levels.
    """
    if rivals == 1:
        return alpha, [np.array([alpha])]
    single = SINGLES_OUT * alpha / rivals
    sizes = np.arange(1, together + 1)
    parts = (1 + 1 / together) / (sizes * (sizes + 1))
    each = [levels((1 - SINGLES_OUT) * alpha * part, size, size) for size, part in enumerate(parts, start=1)]
    return single, [np.append(max(single, level[0]), level[1:]) for level in each]


class _SuspectSide:
    """r -> max over V among the suspects of min over T in V of the mean of p* over T; rows are |V| by images.

    `each` holds for each |V| = 1, 2, ... the levels of the bounds on a T of 1, 2, ..., |V| labels.
    """

    def __init__(self, suspects: Group, each: Sequence[Floats], bounds: Bounds) -> None:
        self.members = subset_sizes(suspects.num_true)
        self.sizes = range(1, len(each) + 1)
        mass = layer_mass(suspects, suspects.num_true)
        rows = [self._rows(suspects, mass, level, bounds) for level in each]
        present = np.arange(1, suspects.num_true + 1) <= self.members[:, None]
        self.layers = Layers.of(np.concatenate(rows), 1 / np.maximum(self.members, 1), suspects.shift, present)

    def _rows(self, suspects: Group, mass: Floats, level: Floats, bounds: Bounds) -> Floats:
        """(images, 2^w, w) the layers of every T that fits into a V with as many labels as levels."""
        inside = np.flatnonzero((self.members >= 1) & (self.members <= len(level)))
        members = self.members[inside][:, None]
        counted = bounds.upper(mass[:, inside], suspects.draws[:, None, None], level[members - 1])
        layers = np.ones_like(mass)
        layers[:, inside] = counted
        return layers

    def __call__(self, r: Floats) -> Floats:
        means = self.layers.moved(r)
        means[:, 0] = np.inf
        least = best_within(means, np.minimum).reshape(len(self.sizes), -1, len(self.members))
        return np.concatenate([row[:, self.members == v].max(axis=1) for row, v in zip(least, self.sizes, strict=True)])


def _beside(group: Group, each: Sequence[float], bounds: Bounds) -> Layers:
    """The most hit label that is no suspect: a V that is not among the suspects alone holds one at most as probable."""
    together = len(each)
    mass, draws = group.rivals(together + 1)[:, together:], group.draws[:, None]
    if mass.shape[1] == 0:
        none = np.zeros((1, 1), dtype=np.bool_)
        return Layers.of(np.zeros((group.images * together, 1, 1)), np.ones(1), group.shift, none)
    singles = [bounds.upper(mass, draws, level) for level in each]
    return Layers.of(np.concatenate(singles)[:, :, None], np.ones(1), group.shift)
