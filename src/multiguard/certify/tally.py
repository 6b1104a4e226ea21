"""From the votes of one picture to the few numbers that certificates are made of."""

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
        overlap_mass: (k' + 1,) the mass of the draws that hit exactly h labels of L, h = 0..k'.
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
    on_labels = hits[:, labels]
    bits = on_labels @ _bit_values(labels)
    overlap = on_labels.sum(axis=1)
    label_mass = hits.sum(axis=0) if weights is None else weights @ hits
    return _tally(hits.shape[0] if weights is None else 1, labels, label_mass, overlap, bits, k_prime, weights)


def tally_ranked(ranked: NDArray[np.integer], labels: Ints, k_prime: int, num_labels: int) -> Tally:
    """The tally of ranked votes (draws, K'), of which the first k' of each row count."""
    chosen = ranked[:, :k_prime]
    member, bit = np.zeros(num_labels, np.int64), np.zeros(num_labels, np.int64)
    member[labels], bit[labels] = 1, _bit_values(labels)
    label_mass = np.bincount(chosen.ravel(), minlength=num_labels)
    overlap, bits = member[chosen].sum(axis=1), bit[chosen].sum(axis=1)
    return _tally(ranked.shape[0], labels, label_mass, overlap, bits, k_prime, None)


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


def _bit_values(labels: Ints) -> Ints:
    """2^i for the i-th label; nothing but zeros where there are too many labels for patterns."""
    exponents = np.arange(len(labels))
    return 1 << exponents if len(labels) <= MOST_SUBSET_LABELS else 0 * exponents


def _tally(
    draws: float,
    labels: Ints,
    label_mass: NDArray[np.number],
    overlap: Ints,
    bits: Ints,
    k_prime: int,
    weights: Floats | None,
) -> Tally:
    patterns = 1 << len(labels) if len(labels) <= MOST_SUBSET_LABELS else 0
    return Tally(
        draws=draws,
        labels=labels,
        label_mass=label_mass.astype(np.float64),
        overlap_mass=np.bincount(overlap, weights, minlength=k_prime + 1).astype(np.float64),
        pattern_mass=np.bincount(bits, weights, minlength=patterns).astype(np.float64) if patterns else np.empty(0),
    )
