"""Images as data URIs, and perturbations made visible."""

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_SMALL = 96  # pixels per side, up to which an image is sent without loss
_QUALITY = 85


def image_uri(pixels: NDArray[Any], quality: int = _QUALITY) -> str:
    """The image (3, height, width) as a data URI; values outside [0, 1] are shown as 0 or 1.

    >>> image_uri(np.zeros((3, 2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    if pixels.dtype != np.uint8:
        pixels = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)))
    kind = "png" if max(image.size) <= _SMALL else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def magnified(delta: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """The perturbation around middle grey, times a factor that is shown: the largest 1, 2 or 5 times 10^n that fits.

    >>> magnified(np.full((3, 1, 1), -0.004, np.float32))[1]
    100.0
    """
    largest = float(np.abs(delta).max())
    if largest == 0:
        return np.full_like(delta, 0.5), 1.0
    power = 10.0 ** math.floor(math.log10(0.5 / largest))
    factor = next(step * power for step in (5, 2, 1) if step * power * largest <= 0.5)
    return np.asarray(0.5 + factor * delta, dtype=np.float32), factor
