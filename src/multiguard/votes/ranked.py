"""The ranked labels of the draws of one image, and the hits that certifying takes."""

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import InvalidInputError

Ranked = NDArray[np.uint8 | np.uint16]


def vote_dtype(num_labels: int) -> type[np.uint8] | type[np.uint16]:
    """One byte a label up to 256 labels, two up to 65,536."""
    if not 1 <= num_labels <= 1 << 16:
        raise InvalidInputError(f"votes hold between 1 and 65536 labels, not {num_labels}.")
    return np.uint8 if num_labels <= 1 << 8 else np.uint16


def hits_of(ranked: Ranked, k_prime: int, num_labels: int) -> NDArray[np.bool_]:
    """Whether label i is among the k' labels that f returns for a draw: (draws, num_labels), k' hits a draw.

    Args:
        ranked: (draws, K'), best label first.
        k_prime: How many labels f returns, at most K'.
        num_labels: c.
    """
    draws, k_max = ranked.shape
    if not 1 <= k_prime <= k_max:
        raise InvalidInputError(
            f"k_prime must lie between 1 and the {k_max} ranks that the votes keep, not {k_prime}."
        )
    hits = np.zeros((draws, num_labels), dtype=np.bool_)
    hits[np.arange(draws)[:, None], ranked[:, :k_prime]] = True
    return hits
