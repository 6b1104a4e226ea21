"""Thumbnails show the image."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from tests.report.studies import NoiseImages

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Uniform
from multiguard.data import Sample
from multiguard.report import thumbnails
from multiguard.report.thumbnails import Illustrator, make_thumbnail, make_thumbnails


@pytest.mark.parametrize(
    ("height", "width", "shown"), [(224, 224, (128, 128)), (400, 200, (64, 128)), (32, 32, (32, 32))]
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_thumbnail(height: int, width: int, shown: tuple[int, int], kind: type) -> None:
    """A thumbnail is the image at 128 pixels or less, with its own size on record."""
    image = np.zeros((3, height, width), dtype=kind)
    image[0] = 255 if kind is np.uint8 else 1
    made = make_thumbnail(Sample("red", image, ()))
    image = Image.open(io.BytesIO(base64.b64decode(made[0].partition(",")[2])))
    assert image.size == shown
    assert made[1:3] == (height, width)
    assert np.abs(np.asarray(image.convert("RGB")).mean(axis=(0, 1)) - [255, 0, 0]).max() < 8


def test_perturbed_copies() -> None:
    """The perturbation has the norm, the noise the standard deviation, and each image its own."""
    pixels = np.full((3, 50, 60), 0.5, np.float32)
    (perturbed, noisy), (_, other) = (Gaussian(0.25).sample(Illustrator(pixels, 0.75, seed)) for seed in (1, 2))
    assert np.linalg.norm((perturbed - pixels).astype(float)) == pytest.approx(0.75, rel=1e-4)
    assert np.std(noisy - pixels) == pytest.approx(0.25, rel=0.03)
    assert not np.array_equal(noisy, other)


def test_other_attackers() -> None:
    """The perturbation is one that the attacker can make; the copy is what the classifier sees, hidden pixels grey."""
    pixels = np.full((3, 32, 32), 0.25, np.float32)
    perturbed, noisy = Uniform(0.5).sample(Illustrator(pixels, 4.5, 1))
    assert np.abs(perturbed - pixels).sum() == pytest.approx(4.5, rel=1e-4)
    assert 0.45 < np.abs(noisy - pixels).max() <= 0.5
    perturbed, noisy = PixelAblation(45, 1024).sample(Illustrator(pixels, 7, 1))
    assert np.any(perturbed != pixels, axis=0).sum() == 7
    assert np.all(noisy != 0.5, axis=0).sum() == 45
    perturbed, noisy = BandAblation(4, 32).sample(Illustrator(pixels, 3, 1))
    rows, columns = np.nonzero(np.any(perturbed != pixels, axis=0))
    assert (np.ptp(rows), np.ptp(columns), len(rows)) == (2, 2, 9)
    assert np.all(noisy != 0.5, axis=(0, 1)).sum() == 4


def test_illustrated_images(monkeypatch) -> None:
    """The first images have perturbed copies, the others none; a copy is no larger than the image shown."""
    images = NoiseImages(["a", "b", "c"], side=200)
    monkeypatch.setattr(thumbnails, "MOST_ILLUSTRATED", 2)
    made, others = make_thumbnails(images, dict.fromkeys(images.ids), (Gaussian(0.5), 0.5))
    assert [sorted(looks) for *_, looks in made.values()] == [["noisy", "perturbed"]] * 2 + [[]]
    assert made["a"][3]["noisy"] != made["b"][3]["noisy"]
    assert others == {}
