"""Floors and ceilings of g_t = {i : p_i >= t}: how many labels of L stay in, how many others come in.

If fewer than e labels of L are in, some U in L with |U| = d - e + 1 is out, so max_U p* < t. If more than m others are
in, some V outside L with |V| = m + 1 is in, so min_V p* >= t. They are refuted where, for every U and every V,

    max over S in U of  (1/|S|) sum_{l=1..|S|} down(q_{S,l})  >  t,      q_{S,l} <= Pr(at least l labels of S are hit)
    min over T in V of  (1/|T|) sum_{l=1..|T|} up(x_{T,l})    <  t,      x_{T,l} >= Pr(at least l labels of T are hit)

Alpha is divided inside one U and one V only. `docs/theory.md` has the proof.
"""

import numpy as np

from multiguard.certify.bounds import Bounds
from multiguard.certify.group import Group
from multiguard.certify.layers import Layers, crossing
from multiguard.certify.subsets import best_within, layer_mass, levels, subset_sizes, weakest_out
from multiguard.certify.types import Floats

At = tuple[float, ...] | None


def joint_floors(group: Group, threshold: float, alpha: float, bounds: Bounds, at: At = None) -> Floats:
    """(images, d) the r up to which at least 1, 2, ..., d labels of L stay in, all at once with 1 - alpha."""
    d = group.num_true
    kept = weakest_out(group, range(1, d + 1), group.num_labels, alpha / d, bounds)
    r = crossing(kept, lambda r: np.full(len(r), threshold), group.images * d, at).reshape(d, -1).T
    return np.maximum.accumulate(r[:, ::-1], axis=1)[:, ::-1]


def independent_floors(group: Group, threshold: float, alpha: float, bounds: Bounds, at: At = None) -> Floats:
    """(images, d) as `joint_floors`, each label by itself."""
    lower = bounds.lower(group.mass_on_labels, group.draws[:, None], alpha / group.num_true)
    return -np.sort(-stays_in(lower, threshold, at), axis=1)


def joint_ceilings(
    group: Group, suspects: Group, threshold: float, alpha: float, bounds: Bounds, at: At = None
) -> Floats:
    """(images, c - d) the r up to which at most 0, 1, ... labels outside L are in, all at once with 1 - alpha.

    Args:
        group: The pictures.
        suspects: The same pictures, their most hit labels outside L in place of L.
        threshold: t.
        alpha: What all ceilings together may spend.
        bounds: Where probabilities come from.
        at: The only r that matter, where that is known.
    """
    together, rivals = suspects.num_true, group.num_labels - group.num_true
    alphas = alpha * _shares(rivals)
    among, beside = _SuspectSide(suspects, alphas[:together], bounds), _beside(group, alphas[:together], bounds)
    few = crossing(
        lambda r: np.full(len(r), threshold),
        lambda r: np.maximum(among(r), beside.shifted(r)[:, 0]),
        group.images * together,
        at,
    )
    sizes = np.arange(together + 1, rivals + 1)
    upper = bounds.upper(group.rivals(rivals)[:, together:], group.draws[:, None], alphas[together:] / sizes)
    r = np.concatenate([few.reshape(together, -1).T, stays_out(upper, threshold, at)], axis=1)
    return np.maximum.accumulate(r, axis=1)


def independent_ceilings(group: Group, threshold: float, alpha: float, bounds: Bounds, at: At = None) -> Floats:
    """(images, c - d) as `joint_ceilings`, each label by itself."""
    rivals = group.num_labels - group.num_true
    upper = bounds.upper(group.rivals(rivals), group.draws[:, None], alpha / rivals)
    return stays_out(upper, threshold, at)


def stays_in(lower: Floats, threshold: float, at: At = None) -> Floats:
    """The r up to which down(lower) > t, in the shape of `lower`."""
    left = Layers.of(lower.reshape(-1, 1, 1), np.ones(1))
    r = crossing(lambda r: left.shifted(-r)[:, 0], lambda r: np.full(len(r), threshold), lower.size, at)
    return r.reshape(lower.shape)


def stays_out(upper: Floats, threshold: float, at: At = None) -> Floats:
    """The r up to which up(upper) < t, in the shape of `upper`."""
    right = Layers.of(upper.reshape(-1, 1, 1), np.ones(1))
    r = crossing(lambda r: np.full(len(r), threshold), lambda r: right.shifted(r)[:, 0], upper.size, at)
    return r.reshape(upper.shape)


class _SuspectSide:
    """r -> max over V among the suspects of min over T in V of the mean of p* over T; rows are |V| by pictures."""

    def __init__(self, suspects: Group, alphas: Floats, bounds: Bounds) -> None:
        self.members = subset_sizes(suspects.num_true)
        self.sizes = range(1, len(alphas) + 1)
        mass = layer_mass(suspects, suspects.num_true)
        rows = [self._rows(suspects, mass, v, alpha, bounds) for v, alpha in zip(self.sizes, alphas, strict=True)]
        self.layers = Layers.of(np.concatenate(rows), 1 / np.maximum(self.members, 1))

    def _rows(self, suspects: Group, mass: Floats, size: int, alpha: float, bounds: Bounds) -> Floats:
        """(images, 2^w, w) the layers of every T that fits into a V of this size."""
        inside = np.flatnonzero((self.members >= 1) & (self.members <= size))
        members = self.members[inside][:, None]
        level = levels(alpha, size, size)[members - 1]
        counted = bounds.upper(mass[:, inside], suspects.draws[:, None, None], level)
        layers = np.ones_like(mass)
        layers[:, inside] = np.where(np.arange(1, suspects.num_true + 1) <= members, counted, 0.0)
        return layers

    def __call__(self, r: Floats) -> Floats:
        means = self.layers.shifted(r)
        means[:, 0] = np.inf
        least = best_within(means, np.minimum).reshape(len(self.sizes), -1, len(self.members))
        return np.concatenate([row[:, self.members == v].max(axis=1) for row, v in zip(least, self.sizes, strict=True)])


def _beside(group: Group, alphas: Floats, bounds: Bounds) -> Layers:
    """The most hit label that is no suspect: a V that is not among the suspects alone holds one at most as probable."""
    together = len(alphas)
    mass, draws = group.rivals(together + 1)[:, together:], group.draws[:, None]
    if mass.shape[1] == 0:
        return Layers.of(np.zeros((group.images * together, 1, 1)), np.ones(1))
    singles = [bounds.upper(mass, draws, levels(alpha, v, v)[0]) for v, alpha in enumerate(alphas, start=1)]
    return Layers.of(np.concatenate(singles)[:, :, None], np.ones(1))


def _shares(ceilings: int) -> Floats:
    """(ceilings,) of alpha, for m = 0, 1, ...: 1/2, 1/6, 1/12, ..., below 1 in all, however many labels there are."""
    sizes = np.arange(1, ceilings + 1)
    return 1 / (sizes * (sizes + 1.0))
