"""The certificate of band ablation: every band is classified, so nothing is estimated and nothing can fail.

A patch of side m that begins at column p meets D = m + width - 1 bands. Their votes are the attacker's; all others
stay. Let n_i count the votes for label i among the others. Size e of the top-k rule is broken only if, for some p,
the k - e + 1 labels outside L with the largest n_j can all be raised to M, the e-th largest n_i of L: each lacks at
most D votes, and together they lack at most k' D. Under the threshold rule a label of L stays if n_i alone suffices,
and other labels come in if each lacks at most D votes, and together, with a k', at most k' D. Counts are whole
numbers, ties are broken. `docs/theory.md` has the proof.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.ablation import BandAblation
from multiguard.certify.arguments import Bools, Floats, Ints, check_labels
from multiguard.certify.rules import Rule, TopK
from multiguard.errors import InvalidInputError


def enumerated_radii(
    votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int, noise: BandAblation
) -> tuple[Floats, Floats | None]:
    """The largest patch side of each claim about one image, as `Radii` has them; L may be chosen from the votes."""
    true = check_labels(labels, num_labels, allow_none=True)
    outside = np.setdiff1d(np.arange(num_labels), true)
    patches = _Patches(_hits(votes, rule, num_labels, noise), noise)
    if isinstance(rule, TopK):

        def sizes_broken(side: int) -> Bools:
            left = patches.left(side)
            own, others = (-np.sort(-left[:, labels], axis=1) for labels in (true, outside))
            return _sizes_broken(own, others, rule, patches.met(side))

        return _largest_sides(sizes_broken, noise.columns, min(len(true), rule.k)), None
    needed = rule.needed(noise.columns)

    def bounds_broken(side: int) -> Bools:
        left, most = patches.left(side), patches.met(side)
        stay = (left[:, true] >= needed).sum(axis=1).min()
        lacking = np.sort(np.maximum(needed - left[:, outside], 0), axis=1)
        raised = (lacking <= most) & (np.cumsum(lacking, axis=1) <= rule.hits_at_most(len(outside)) * most)
        enter = raised.sum(axis=1).max()
        return np.concatenate([stay < np.arange(1, len(true) + 1), enter > np.arange(len(outside))])

    both = _largest_sides(bounds_broken, noise.columns, num_labels)
    return both[: len(true)], both[len(true) :]


def _hits(votes: ArrayLike, rule: Rule, num_labels: int, noise: BandAblation) -> Bools:
    """(columns, labels) the labels that each band returned, if there is a draw for each."""
    hits = rule.sets(np.atleast_1d(votes), num_labels)
    if len(hits) != noise.columns:
        raise InvalidInputError(
            f"the votes have {len(hits)} draws; the noise {noise} has its {noise.columns} bands in order"
        )
    return hits


class _Patches:
    """The votes that patches of any side leave as they are, at each of their positions."""

    def __init__(self, hits: Bools, noise: BandAblation) -> None:
        self.noise = noise
        twice = np.concatenate([np.zeros((1, hits.shape[1]), np.bool_), hits, hits])
        self._sums = np.cumsum(twice, axis=0, dtype=np.int64)

    def met(self, side: int) -> int:
        """D, the number of bands that a patch of this side meets."""
        return int(self.noise.met(side))

    def left(self, side: int) -> Ints:
        """(positions, labels) the votes of the bands that a patch does not meet."""
        columns = self.noise.columns
        first = (np.arange(columns - side + 1) - self.noise.width + 1) % columns
        left: Ints = self._sums[columns] - (self._sums[first + self.met(side)] - self._sums[first])
        return left


def _sizes_broken(own: Ints, others: Ints, rule: TopK, most: int) -> Bools:
    """(sizes,) whether fewer than e = 1, 2, ... labels of L may be returned; no size is where too few labels are left.

    `own` and `others`, (positions, labels) downwards, are the votes left to L and to others; a label can get `most`.
    """
    broken = np.zeros(min(own.shape[1], rule.k), dtype=np.bool_)
    for e in range(max(1, rule.k - others.shape[1] + 1), len(broken) + 1):
        lacking = np.maximum(own[:, [e - 1]] - others[:, : rule.k - e + 1], 0)
        raised = (lacking <= most).all(axis=1) & (lacking.sum(axis=1) <= rule.k_prime * most)
        broken[e - 1] = raised.any()
    return broken


def _largest_sides(broken: Callable[[int], Bools], columns: int, claims: int) -> Floats:
    """(claims,) the largest side that breaks nothing: -inf where every one breaks it, +inf where none does.

    A larger patch contains a smaller one, so that what one side breaks all larger ones break.
    """
    at, radii = cache(broken), np.empty(claims)
    for claim in range(claims):
        first = bisect_left(range(columns + 1), 1, key=lambda side: int(at(side)[claim]))
        radii[claim] = np.inf if first > columns else first - 1 if first else -np.inf
    return radii
