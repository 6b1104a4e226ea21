"""Labels chosen from pilot draws: what is protected where no ground truth is known."""

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import InvalidInputError
from multiguard.votes.types import Ranked


def most_frequent(ranked: Ranked, *, k: int, k_prime: int, num_labels: int) -> tuple[int, ...]:
    """The k labels with the most hits, most first; of equal counts the smaller index comes first.

    Args:
        ranked: (draws, K') of pilot draws.
        k: How many labels the smoothed classifier returns.
        k_prime: How many the base classifier returns.
        num_labels: c, the number of labels there are.
    """
    if not 1 <= k_prime <= ranked.shape[1]:
        kept = ranked.shape[1]
        raise InvalidInputError(f"k_prime must be between 1 and k_max = {kept}, the ranks kept, not {k_prime}.")
    counts = np.bincount(ranked[:, :k_prime].ravel(), minlength=num_labels)
    return tuple(int(label) for label in np.argsort(-counts, kind="stable")[:k])


def passing(hits: NDArray[np.bool_], *, threshold: float) -> tuple[int, ...]:
    """The labels in at least a share `threshold` of the draws, most hits first; there may be none.

    Args:
        hits: (draws, c) of pilot draws.
        threshold: t, the share of draws at which the smoothed classifier returns a label.
    """
    shares = hits.mean(axis=0)
    return tuple(int(label) for label in np.argsort(-shares, kind="stable") if shares[label] >= threshold)
