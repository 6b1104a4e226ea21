"""The exact limit: how far any attacker can be kept away, over all classifiers with the same vote distribution.

Only the projection t of the noise on the perturbation matters: t ~ N(0, 1) at x and N(r, 1) at x + delta. A classifier
with the given distribution of vote sets says, at each t, how probable each set is. Here it may choose so on each of a
number of intervals of t. Every such choice is a real classifier, so an attack found here is a real attack: the radius
returned is at or above the true limit, and a certificate above it is proved wrong.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack
from scipy.special import ndtr

Floats = NDArray[np.float64]
BINS = 60


def least_most(sets: NDArray[np.bool_], chances: Floats, leads: Floats, r: float, bins: int = BINS) -> float:
    """The least that a classifier with these vote chances can make the largest of several sums at distance r.

    Args:
        sets: (masks, labels) the vote sets.
        chances: (masks,) how probable each is at the image.
        leads: (sums, masks) what each vote set adds to each sum.
        r: The distance.
        bins: The number of intervals.
    """
    edges = np.concatenate([[-np.inf], np.linspace(-4.0, 4.0 + r, bins - 1), [np.inf]])
    before, after = np.diff(ndtr(edges)), np.diff(ndtr(edges - r))
    masks = len(sets)
    cells = np.arange(masks * bins).reshape(masks, bins)
    most = masks * bins
    total = masks * bins + 1

    def row_block(rows: NDArray[np.int64], values: Floats, count: int) -> coo_array:
        return coo_array((values, (rows, cells.ravel())), shape=(count, total))

    whole = row_block(np.tile(np.arange(bins), masks), np.ones(masks * bins), bins)
    # The last set's chance follows from the others'.
    kept = row_block(np.repeat(np.arange(masks), bins), np.tile(before, masks), masks).tocsr()[:-1]
    rows = [np.append((lead[:, None] * after).ravel(), -1.0) for lead in leads]
    cost = np.zeros(total)
    cost[most] = 1.0
    limits = [(0, 1)] * (masks * bins) + [(-1, 1)]
    solved = linprog(
        cost,
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=vstack([whole, kept]).tocsr(),
        b_eq=np.concatenate([np.ones(bins), chances[:-1]]),
        bounds=limits,
        method="highs",
    )
    assert solved.status == 0, solved.message
    return float(solved.fun)


def least_gap(
    sets: NDArray[np.bool_], chances: Floats, U: tuple[int, ...], V: tuple[int, ...], r: float, bins: int = BINS
) -> float:
    """The least max over U, V of p*_i - p*_j that a classifier with these vote chances can have at distance r."""
    leads = np.array([sets[:, i].astype(float) - sets[:, j] for i in U for j in V])
    return least_most(sets, chances, leads, r, bins)


def limit_radius(
    sets: NDArray[np.bool_],
    chances: Floats,
    labels: list[int],
    *,
    k: int,
    e: int,
    furthest: float = 6.0,
    bins: int = BINS,
    within: float = 1e-3,
) -> float:
    """An r at which an attack on size e exists, `within` so much of the least one found; inf if none to `furthest`."""
    others = [j for j in range(sets.shape[1]) if j not in labels]
    best = furthest
    found = False
    for U in combinations(labels, len(labels) - e + 1):
        for V in combinations(others, k - e + 1):
            if least_gap(sets, chances, U, V, max(best - within, 0.0), bins) > 0:
                continue
            found = True
            low, high = 0.0, max(best - within, 0.0)
            while high - low > within:
                middle = (low + high) / 2
                low, high = (low, middle) if least_gap(sets, chances, U, V, middle, bins) <= 0 else (middle, high)
            best = high
    return best if found else np.inf


def floor_limit(
    sets: NDArray[np.bool_], chances: Floats, labels: list[int], *, threshold: float, e: int, furthest: float = 6.0
) -> float:
    """An r at which fewer than e labels can have p* >= threshold; inf if none is found up to `furthest`."""
    out = list(combinations(labels, len(labels) - e + 1))
    return _least_r(
        lambda r: any(least_most(sets, chances, sets.T[list(U)].astype(float), r) < threshold for U in out), furthest
    )


def ceiling_limit(
    sets: NDArray[np.bool_], chances: Floats, labels: list[int], *, threshold: float, m: int, furthest: float = 6.0
) -> float:
    """An r at which more than m other labels can have p* >= threshold; inf if none is found up to `furthest`."""
    into = list(combinations([j for j in range(sets.shape[1]) if j not in labels], m + 1))
    return _least_r(
        lambda r: any(-least_most(sets, chances, -sets.T[list(V)].astype(float), r) >= threshold for V in into),
        furthest,
    )


def _least_r(broken: Callable[[float], bool], furthest: float) -> float:
    """The upper end of a bracket of 1e-3 around the least r that is broken."""
    if not broken(furthest):
        return np.inf
    low, high = 0.0, furthest
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if broken(middle) else (middle, high)
    return high
