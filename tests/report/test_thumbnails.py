"""Thumbnails show the image."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from multiguard.data import Sample
from multiguard.report.thumbnails import make_thumbnail


@pytest.mark.parametrize(
    ("height", "width", "shown"), [(224, 224, (128, 128)), (400, 200, (64, 128)), (32, 32, (32, 32))]
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_thumbnail(height: int, width: int, shown: tuple[int, int], kind: type) -> None:
    """A thumbnail is the image at 128 pixels or less, with its own size on record."""
    image = np.zeros((3, height, width), dtype=kind)
    image[0] = 255 if kind is np.uint8 else 1
    made = make_thumbnail(Sample("red", image, ()))
    image = Image.open(io.BytesIO(base64.b64decode(made.uri.partition(",")[2])))
    assert image.size == shown
    assert (made.height, made.width) == (height, width)
    assert np.abs(np.asarray(image.convert("RGB")).mean(axis=(0, 1)) - [255, 0, 0]).max() < 8
