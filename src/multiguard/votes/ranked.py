"""The ranked labels of the draws of one image: (draws, K'), best first."""

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import InvalidInputError

DEFAULT_RANKS = 10  # how many ranked labels of each draw are kept where nobody says, or all where there are fewer
Ranked = NDArray[np.uint8 | np.uint16]


def vote_dtype(num_labels: int) -> type[np.uint8] | type[np.uint16]:
    """One byte a label up to 256 labels, two up to 65,536."""
    if not 1 <= num_labels <= 1 << 16:
        raise InvalidInputError(f"votes hold between 1 and 65536 labels, not {num_labels}.")
    return np.uint8 if num_labels <= 1 << 8 else np.uint16
