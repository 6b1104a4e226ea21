"""Noises that move probabilities by D: the exact limit, and copies on which a classifier loses exactly D.

Any law of the answers at x + delta that is within D of the law at x, in total variation, belongs to some classifier.
So the exact limit is the least D at which such a law breaks the claim: one small linear programme for each pair.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]
Hits = NDArray[np.bool_]


def least_variation(chances: Floats, rows: Floats, at_most: Floats) -> float:
    """The least total variation from `chances` of a law q with rows @ q <= at_most; inf where there is none."""
    masks = len(chances)
    # The law, then what it lacks of each chance.
    cost = np.concatenate([np.zeros(masks), np.ones(masks)])
    lacks = np.concatenate([-np.eye(masks), -np.eye(masks)], axis=1)
    broken = np.concatenate([rows, np.zeros_like(rows)], axis=1)
    whole = np.concatenate([np.ones(masks), np.zeros(masks)])[None]
    solved = linprog(
        cost,
        A_ub=np.concatenate([lacks, broken]),
        b_ub=np.concatenate([-chances, at_most]),
        A_eq=whole,
        b_eq=[1.0],
        method="highs",
    )
    return float(solved.fun) if solved.status == 0 else np.inf


def size_limit(sets: Hits, chances: Floats, labels: list[int], *, k: int, e: int) -> float:
    """The least D at which some law leaves fewer than e labels of L among the top k."""
    others = [j for j in range(sets.shape[1]) if j not in labels]
    pairs = ((U, V) for U in combinations(labels, len(labels) - e + 1) for V in combinations(others, k - e + 1))
    return _least(chances, (np.array([sets[:, i] - 1.0 * sets[:, j] for i in U for j in V]) for U, V in pairs), 0.0)


def floor_limit(sets: Hits, chances: Floats, labels: list[int], *, t: float, e: int) -> float:
    """The least D at which some law takes all but e - 1 labels of L to t or below."""
    return _least(chances, (sets.T[list(U)] * 1.0 for U in combinations(labels, len(labels) - e + 1)), t)


def ceiling_limit(sets: Hits, chances: Floats, labels: list[int], *, t: float, m: int) -> float:
    """The least D at which some law takes more than m labels outside L to t or above."""
    others = [j for j in range(sets.shape[1]) if j not in labels]
    return _least(chances, (sets.T[list(V)] * -1.0 for V in combinations(others, m + 1)), -t)


def _least(chances: Floats, blocks: Iterable[Floats], at_most: float) -> float:
    found = [least_variation(chances, rows, np.full(len(rows), at_most)) for rows in blocks]
    return min(found, default=np.inf)


@dataclass(frozen=True)
class HiddenPixels:
    """An image of `pixels` pixels of which `keep` are seen; the attacker changes the first `changed` of them.

    s of an ablated copy: those that show an original pixel among the first `changed` have the smallest s, those that
    show a changed one have s >= 1. So s is uniform on a grid, of [0, 1) at the image and of [D, 1 + D) when attacked.
    """

    keep: int
    pixels: int
    changed: int

    def order(self) -> NDArray[np.int64]:
        """(copies, keep) all sets of pixels that may be seen, those that meet the attacked ones first."""
        every = np.array(list(combinations(range(self.pixels), self.keep)))
        meets = (every < self.changed).any(axis=1)
        return np.concatenate([every[meets], every[~meets]])

    def positions(self, rng: np.random.Generator, draws: int, image: Floats) -> Floats:
        """(draws,) s of ablated copies of this image; the original has 0 everywhere, a changed pixel has 1."""
        order = self.order()
        chosen = rng.integers(len(order), size=draws)
        seen = image[order[chosen]]
        return np.where((seen == 1).any(axis=1), 1.0, 0.0) + chosen / len(order)
