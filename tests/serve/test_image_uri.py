"""What the page shows of images and perturbations."""

import base64
import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from multiguard.serve.image_uri import image_uri, magnified


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_small_image():
    """A small image arrives as it is, values beyond [0, 1] at the ends."""
    image = np.zeros((3, 4, 6), np.float32)
    image[0, 1, 2], image[1, 3, 5] = 7.0, 0.5
    shown = decoded(image_uri(image))
    assert shown.shape == (4, 6, 3)
    assert shown[1, 2].tolist() == [255, 0, 0]
    assert shown[3, 5].tolist() == [0, 128, 0]


def test_large_image():
    """A large image is compressed."""
    assert image_uri(np.zeros((3, 224, 224), np.uint8)).startswith("data:image/jpeg")


@given(st.floats(1e-6, 0.5))
def test_factor(largest):
    """The factor is 1, 2 or 5 times a power of ten, what it makes fits into [0, 1], and the next one would not."""
    shown, factor = magnified(np.array([[[largest, 0.0, -largest]]], np.float32))
    assert -1e-6 <= shown.min() < shown.max() <= 1 + 1e-6
    digits = f"{factor:.0e}".partition("e")[0]
    assert digits in ("1", "2", "5")
    assert largest * factor * {"1": 2, "2": 2.5, "5": 2}[digits] > 0.5 * (1 - 1e-6)


def test_no_perturbation():
    """Nothing stays nothing."""
    shown, factor = magnified(np.zeros((3, 2, 2), np.float32))
    assert (shown == 0.5).all()
    assert factor == 1
