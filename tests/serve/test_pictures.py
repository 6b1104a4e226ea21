"""What the page shows: the images that it offers, and perturbations made visible."""

import base64
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.serve.colours import encode

from multiguard.errors import InvalidInputError
from multiguard.serve.live_page import find_examples
from multiguard.serve.runs import image_uri, magnified


def test_examples(tmp_path):
    """The images of a folder by name, without those that cannot be read and without other files."""
    files = {"b-c.png": encode(), "a.jpg": encode(kind="JPEG"), "bad.png": b"x", "notes.txt": b"x"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = find_examples(tmp_path, 8)
    assert [(name, content) for name, content, _ in found] == [("a", files["a.jpg"]), ("b c", files["b-c.png"])]
    assert all(thumbnail.startswith("data:image/") for *_, thumbnail in found)
    (tmp_path / "none").mkdir()
    (tmp_path / "bad.png").rename(tmp_path / "none" / "bad.png")
    with pytest.raises(InvalidInputError, match="no folder of readable images"):
        find_examples(tmp_path / "none", 8)


def test_package_photos():
    """Without a folder the package's photos are offered to models that take photos, and to no others."""
    assert find_examples(None, 32) == ()
    assert {"cat", "coffee"} <= {name for name, *_ in find_examples(None, 224)}


def test_image_uri():
    """A small image arrives as it is, values beyond [0, 1] at the ends; a large one is compressed."""
    image = np.zeros((3, 4, 6), np.float32)
    image[0, 1, 2], image[1, 3, 5] = 7.0, 0.5
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(image_uri(image).partition(",")[2]))))
    assert shown.shape == (4, 6, 3)
    assert (shown[1, 2].tolist(), shown[3, 5].tolist()) == ([255, 0, 0], [0, 128, 0])
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
