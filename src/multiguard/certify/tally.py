"""From the votes of one image to the few numbers that certificates are made of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.types import Bools, Floats, Ints
from multiguard.errors import InvalidInputError

# Up to this many labels every subset of L is used (2^12 = 4096 of them).
MOST_SUBSET_LABELS = 12


@dataclass(frozen=True, eq=False)
class Tally:
    """How often each label, and each combination of the labels in L, was hit.

    Masses are counts of draws, or probabilities where the vote distribution is known exactly (then `draws` is 1).

    Attributes:
        draws: The number of draws.
        labels: (d,) the indices of L, sorted.
        label_mass: (num_labels,) the mass of the draws that hit each label.
        overlap_mass: (k' + 1,) the mass of the draws that hit exactly h labels of L, h = 0..k' (0..d for sets of any
            size).
        pattern_mass: (2^d,) the mass of the draws that hit exactly the labels of L whose bits are set; bit i stands
            for labels[i]. Empty where d exceeds `MOST_SUBSET_LABELS`.
    """

    draws: float
    labels: Ints
    label_mass: Floats
    overlap_mass: Floats
    pattern_mass: Floats


def tally_hits(hits: Bools, labels: Ints, k_prime: int, weights: Floats | None = None) -> Tally:
    """The tally of boolean votes (draws, num_labels), each row exactly k' hits; `weights` are row probabilities."""
    ranked = np.nonzero(hits)[1].reshape(-1, k_prime)
    return tally_ranked(ranked, labels, k_prime, hits.shape[1], weights)


def tally_ranked(
    ranked: NDArray[np.integer], labels: Ints, k_prime: int, num_labels: int, weights: Floats | None = None
) -> Tally:
    """The tally of ranked votes (draws, K'), of which the first k' of each row count."""
    chosen = ranked[:, :k_prime].astype(np.intp)
    few = len(labels) <= MOST_SUBSET_LABELS
    marks = np.zeros(num_labels, np.int64)
    marks[labels] = 1 << np.arange(len(labels)) if few else 1
    found = marks[chosen].sum(axis=1)
    patterns = np.bincount(found, weights, minlength=1 << len(labels) if few else k_prime + 1).astype(np.float64)
    overlap = patterns if not few else np.bincount(np.bitwise_count(np.arange(len(patterns))), patterns, k_prime + 1)
    each = None if weights is None else np.repeat(weights, k_prime)
    return Tally(
        draws=len(ranked) if weights is None else 1,
        labels=labels,
        label_mass=np.bincount(chosen.ravel(), each, minlength=num_labels).astype(np.float64),
        overlap_mass=overlap[: k_prime + 1].astype(np.float64),
        pattern_mass=patterns if few else np.empty(0),
    )


def tally_sets(hits: Bools, labels: Ints, weights: Floats | None = None) -> Tally:
    """The tally of boolean votes (draws, num_labels), any number of hits a row; `weights` are row probabilities."""
    few = len(labels) <= MOST_SUBSET_LABELS
    on_labels = hits[:, labels]
    count = on_labels.sum(axis=1)
    patterns = on_labels @ (1 << np.arange(len(labels))) if few else count[:0]
    return Tally(
        draws=len(hits) if weights is None else 1,
        labels=labels,
        label_mass=np.asarray(hits.sum(axis=0) if weights is None else weights @ hits, dtype=np.float64),
        overlap_mass=np.bincount(count, weights, minlength=len(labels) + 1).astype(np.float64),
        pattern_mass=np.bincount(patterns, weights, minlength=1 << len(labels)).astype(np.float64)
        if few
        else np.empty(0),
    )


def hits_from_ranked(ranked: ArrayLike, *, k_prime: int, num_labels: int) -> Bools:
    """The boolean hits (draws, num_labels) of ranked votes: each row marks the first k' labels of its draw.

    Args:
        ranked: (draws, K') integers, the labels of each draw from the highest score down, K' >= k'.
        k_prime: How many labels the base classifier returns, 1 <= k' <= K'.
        num_labels: c, the number of labels there are.
    """
    votes = checked_ranked(ranked, k_prime=k_prime, num_labels=num_labels)
    hits = np.zeros((votes.shape[0], num_labels), dtype=np.bool_)
    np.put_along_axis(hits, votes[:, :k_prime].astype(np.intp), True, axis=1)
    return hits


def checked_ranked(ranked: ArrayLike, *, k_prime: int, num_labels: int) -> NDArray[np.integer]:
    """The ranked votes as an array; raises unless each row's first k' entries are different labels."""
    votes = np.asarray(ranked)
    if votes.ndim != 2 or not np.issubdtype(votes.dtype, np.integer):
        raise InvalidInputError(f"ranked votes must be integers (draws, K'), got {votes.dtype} {votes.shape}")
    if votes.shape[0] < 1:
        raise InvalidInputError("ranked votes hold no draws; at least one is needed to prove anything")
    if votes.shape[1] < k_prime:
        raise InvalidInputError(
            f"k_prime = {k_prime} but only {votes.shape[1]} labels a draw were kept; vote again with more"
        )
    used = votes[:, :k_prime]
    if used.min() < 0 or used.max() >= num_labels:
        raise InvalidInputError(f"ranked votes must be labels in 0..{num_labels - 1}, got {used.min()}..{used.max()}")
    ordered = np.sort(used, axis=1)
    if np.any(ordered[:, 1:] == ordered[:, :-1]):
        raise InvalidInputError("ranked votes name a label twice in one draw; a draw returns k' different labels")
    return votes
