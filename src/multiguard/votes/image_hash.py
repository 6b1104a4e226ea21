"""Which image votes are of: a hash of it as decoded."""

import hashlib

import numpy as np
from numpy.typing import NDArray


def image_hash(image: NDArray[np.generic]) -> str:
    """The sha256 of a decoded image: another size, another decoder or another scale changes it."""
    head = f"{image.dtype} {image.shape};".encode()
    return hashlib.sha256(head + np.ascontiguousarray(image).tobytes()).hexdigest()
