"""Thumbnails show the image."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from tests.report.studies import NoiseImages

from multiguard.certify.noise import Gaussian
from multiguard.data import Sample
from multiguard.report.thumbnails import Illustration, make_thumbnail, make_thumbnails, perturbed_copies


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


def test_perturbed_copies() -> None:
    """The perturbation has the norm, the noise the standard deviation, and each image its own."""
    pixels = np.full((3, 50, 60), 0.5, np.float32)
    made, other = (perturbed_copies(pixels, Illustration(radius=0.75, noise=Gaussian(0.25)), seed) for seed in (1, 2))
    assert np.linalg.norm((made["perturbed"] - pixels).astype(float)) == pytest.approx(0.75, rel=1e-4)
    assert np.std(made["noisy"] - pixels) == pytest.approx(0.25, rel=0.03)
    assert not np.array_equal(made["noisy"], other["noisy"])


def test_illustrated_images() -> None:
    """The first images have perturbed copies, the others none; a copy is no larger than the image shown."""
    images = NoiseImages(["a", "b", "c"], side=200)
    made = make_thumbnails(images, dict.fromkeys(images.ids), Illustration(0.5, 0.5, most=2)).made
    assert [sorted(each.looks) for each in made.values()] == [["noisy", "perturbed"]] * 2 + [[]]
    assert made["a"].looks["noisy"] != made["b"].looks["noisy"]
