"""The certificate of band ablation: every band is classified, so nothing is estimated and nothing can fail.

A patch of side m that begins at column p meets D = m + width - 1 bands. Their votes are the attacker's; all others
stay. Let n_i count the votes for label i among the others. Size e of the top-k rule is broken only if, for some p,
the k - e + 1 labels outside L with the largest n_j can all be raised to M, the e-th largest n_i of L: each lacks at
most D votes, and together they lack at most k' D. Under the threshold rule a label of L stays if n_i alone suffices,
and other labels come in if each lacks at most D votes, and together, with a k', at most k' D. Counts are whole
numbers, ties are broken. `docs/theory.md` has the proof.
"""

from bisect import bisect_left
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import Bools, Floats, Ints, check_labels
from multiguard.certify.noise import Noise
from multiguard.certify.rules import Rule, Threshold, TopK
from multiguard.errors import InvalidInputError


def enumerated_radii(
    votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int, noise: Noise
) -> tuple[Floats, Floats | None]:
    """The largest patch side of each claim about one image, as `Radii` has them; L may be chosen from the votes."""
    true = check_labels(labels, num_labels, allow_none=True)
    outside = np.setdiff1d(np.arange(num_labels), true)
    hits = rule.sets(np.atleast_1d(votes), num_labels)
    if (columns := len(hits)) != noise.positions:
        raise InvalidInputError(
            f"the votes have {columns} draws; the noise {noise} has its {noise.positions} bands in order"
        )
    sums = np.cumsum(np.concatenate([np.zeros((1, num_labels), np.bool_), hits, hits]), axis=0, dtype=np.int64)
    width, claims = int(noise.met(1)), rule.sizes(len(true))

    @cache
    def broken(side: int) -> Bools:
        """Which claims a patch of this side breaks, wherever it is."""
        first, met = (np.arange(columns - side + 1) - width + 1) % columns, int(noise.met(side))
        left = sums[columns] - (sums[first + met] - sums[first])  # (positions, labels) votes of bands that are not met
        if isinstance(rule, TopK):
            return _sizes_broken(left[:, true], left[:, outside], rule, met)
        return _bounds_broken(left[:, true], left[:, outside], rule, rule.needed(columns), met)

    every = claims + (len(outside) if rule.has_ceilings else 0)
    radii = np.empty(every)
    for claim in range(every):  # a larger patch contains a smaller one, so what one side breaks all larger ones break
        side = bisect_left(range(columns + 1), 1, key=lambda side: int(broken(side)[claim]))
        radii[claim] = np.inf if side > columns else side - 1 if side else -np.inf
    return radii[:claims], radii[claims:] if rule.has_ceilings else None


def _sizes_broken(own: Ints, others: Ints, rule: TopK, most: int) -> Bools:
    """(sizes,) whether fewer than e = 1, 2, ... labels of L may be returned; no size is where too few labels are left.

    `own` and `others`, (positions, labels), are the votes left to L and to others; a label can get `most`.
    """
    own, others = -np.sort(-own, axis=1), -np.sort(-others, axis=1)
    broken = np.zeros(rule.sizes(own.shape[1]), dtype=np.bool_)
    for e in range(max(1, rule.k - others.shape[1] + 1), len(broken) + 1):
        lacking = np.maximum(own[:, [e - 1]] - others[:, : rule.k - e + 1], 0)
        raised = (lacking <= most).all(axis=1) & (lacking.sum(axis=1) <= rule.k_prime * most)
        broken[e - 1] = raised.any()
    return broken


def _bounds_broken(own: Ints, others: Ints, rule: Threshold, needed: int, most: int) -> Bools:
    """(d + c - d,) whether fewer than 1, 2, ... labels of L may stay, and more than 0, 1, ... others may come in."""
    stay = (own >= needed).sum(axis=1).min()
    lacking = np.sort(np.maximum(needed - others, 0), axis=1)
    raised = (lacking <= most) & (np.cumsum(lacking, axis=1) <= rule.hits_at_most(others.shape[1]) * most)
    enter = raised.sum(axis=1).max()
    return np.concatenate([stay < np.arange(1, own.shape[1] + 1), enter > np.arange(others.shape[1])])
