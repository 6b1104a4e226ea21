"""The draws of one image in their order, as far as a bet can tell them apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import check_labels
from multiguard.certify.arrays import Bools, Ints
from multiguard.certify.counts import check_votes
from multiguard.certify.rules import Rule, TopK


@dataclass(frozen=True, eq=False)
class Draws:
    """Which labels of L each draw hit, and which others.

    Attributes:
        patterns: (patterns, d) the different sets of labels of L that draws hit.
        pattern: (draws,) which of them each draw hit.
        draw: (hits,) for every hit outside L its draw, not falling.
        rival: (hits,) and its label, as its place among the labels outside L.
        rivals: c - d, the number of labels outside L.
    """

    patterns: Bools
    pattern: Ints
    draw: Ints
    rival: Ints
    rivals: int

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.pattern)

    @property
    def num_true(self) -> int:
        """d, the number of labels in L."""
        return int(self.patterns.shape[1])


def read_draws(votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int) -> Draws:
    """The draws of one image, after the checks of `count_votes`; L may be empty."""
    given, true = np.atleast_1d(votes), check_labels(labels, num_labels, allow_none=True)
    checked = check_votes(given, rule, num_labels)
    place = np.cumsum(np.bincount(true, minlength=num_labels) == 0) - 1
    place[true] = -1 - np.arange(len(true))
    if isinstance(rule, TopK):
        draw, hit = np.repeat(np.arange(len(checked)), rule.k_prime), place[checked[:, : rule.k_prime].ravel()]
    else:
        draw, label = np.nonzero(checked)
        hit = place[label]
    inside = hit < 0
    on_labels = np.zeros((len(checked), len(true)), dtype=np.bool_)
    on_labels[draw[inside], -1 - hit[inside]] = True
    patterns, pattern = _distinct_rows(on_labels)
    return Draws(patterns, pattern, draw[~inside], hit[~inside], num_labels - len(true))


def _distinct_rows(rows: Bools) -> tuple[Bools, Ints]:
    """The different rows of a boolean array, and which of them each row is."""
    packed: NDArray[Any] = np.packbits(rows, axis=1)
    if packed.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), np.int64)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))[:, 0]
    if packed.shape[1] == 1:
        keys = packed[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], which
