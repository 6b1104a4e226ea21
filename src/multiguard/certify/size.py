"""From radii to the certified size at a radius."""

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.types import Ints
from multiguard.errors import InvalidInputError


def certified_size(radii: ArrayLike, radius: ArrayLike) -> Ints:
    """How many labels of L are proved to survive every perturbation of l2-norm at most `radius`.

    It holds wherever the radii do, at all values of `radius` at once if they were proved at once.

    Args:
        radii: (sizes,) the radii of one image, as `certified_radii` returns them.
        radius: A number or an array of any shape, not negative.

    Returns:
        Whole numbers in the shape of `radius`.
    """
    proved, asked = np.asarray(radii, dtype=np.float64), np.asarray(radius, dtype=np.float64)
    if proved.ndim != 1 or np.any(np.isnan(proved)) or np.any(proved[1:] > proved[:-1]):
        raise InvalidInputError("radii must be the non-increasing radii of one image, as certified_radii returns them")
    if not np.all(asked >= 0):
        raise InvalidInputError(f"radius must not be negative or NaN, got {radius!r}")
    sizes: Ints = np.sum(proved >= asked[..., None], axis=-1, dtype=np.int64)
    return sizes
