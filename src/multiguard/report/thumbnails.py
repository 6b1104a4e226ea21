"""Small images as data URIs, for a page that carries them along."""

import base64
import io
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from multiguard.certify.noise import Noise
from multiguard.data import Dataset, Sample
from multiguard.data.image import image_hash
from multiguard.data.sample import Progress
from multiguard.errors import DataError

Floats32 = NDArray[np.float32]
Copies = tuple[Floats32, Floats32]  # the image with a random perturbation, and with noise
Thumbnail = tuple[str, int, int, dict[str, str]]  # a data URI, height and width of the image, and URIs of its copies
LOOKS = ("perturbed", "noisy")  # illustrations of a perturbation of radius R and of the noise: one random example each
_AXES, _CHANNELS = (1, 2, 0), (1, 3)  # of images: channels first, grey or RGB
_LONGEST_SIDE = 128
_QUALITY = 72
MOST_ILLUSTRATED = 100  # a page grows by about 10 kB per image
_GREY = np.float32(0.5)  # of hidden pixels


def make_thumbnails(
    images: Dataset,
    hashes: Mapping[str, str | None],
    illustrated: tuple[Noise, float] | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Thumbnail], dict[str, str]]:
    """A thumbnail of at most 128 pixels per side for each id whose image exists, and why others have none.

    An image of another hash than what was voted on is "replaced", a row of a table and the like "no image". With a
    noise and a radius the first hundred thumbnails have copies, at full size, with a random perturbation that the
    noise's attacker can make, and with noise.
    """
    indices = {image_id: index for index, image_id in enumerate(images.ids)}
    made: dict[str, Thumbnail] = {}
    others: dict[str, str] = {}
    for done, (image_id, expected) in enumerate(hashes.items(), start=1):
        sample = None
        if image_id in indices:
            with suppress(DataError):  # the file is missing or broken; the certificate holds without it
                sample = images[indices[image_id]]
        if sample is not None and (sample.image.ndim != len(_AXES) or sample.image.shape[0] not in _CHANNELS):
            others[image_id] = "no image"
        elif sample is not None and expected not in (None, image_hash(sample.image)):
            others[image_id] = "replaced"
        elif sample is not None:
            copies = illustrated if len(made) < MOST_ILLUSTRATED else None
            made[image_id] = make_thumbnail(sample, copies, seed=done)
        if progress is not None:
            progress(done, len(hashes))
    return made, others


def make_thumbnail(sample: Sample, illustrated: tuple[Noise, float] | None = None, *, seed: int = 0) -> Thumbnail:
    """The image, shrunk if larger than 128 pixels, as WebP or, where that is unavailable, JPEG."""
    pixels = np.asarray(sample.image, dtype=np.float32)
    pixels = pixels / np.float32(255) if sample.image.dtype == np.uint8 else pixels
    copies = () if illustrated is None else illustrated[0].sample(Illustrator(pixels, illustrated[1], seed))
    # Averaging would hide noise: pixels of perturbed copies are left out, not mixed.
    kind = "webp" if features.check("webp") else "jpeg"
    uris = [data_uri(copy, kind, _QUALITY, (_LONGEST_SIDE, Image.Resampling.NEAREST)) for copy in copies]
    shown = data_uri(pixels, kind, _QUALITY, (_LONGEST_SIDE, Image.Resampling.LANCZOS))
    return shown, pixels.shape[1], pixels.shape[2], dict(zip(LOOKS, uris, strict=False))


class Illustrator:
    """Makes copies of an image: with a random perturbation of a radius, and with noise. Values are not clipped."""

    def __init__(self, pixels: Floats32, radius: float, seed: int) -> None:
        self._pixels, self._radius, self._rng = pixels, radius, np.random.default_rng(seed)
        self._shape = pixels.shape[1:]

    def gaussian(self, sigma: float) -> Copies:
        """A perturbation in a random direction."""
        pixels = self._pixels
        direction, noise = (self._rng.standard_normal(pixels.shape, dtype=np.float32) for _ in range(2))
        norm = float(np.linalg.norm(direction.astype(np.float64)))
        return pixels + np.float32(self._radius / norm) * direction, pixels + np.float32(sigma) * noise

    def uniform(self, half_width: float) -> Copies:
        """Random numbers of the image turned to the farther of 0 and 1, one by one, until the norm is spent."""
        noise = self._rng.uniform(-half_width, half_width, self._pixels.shape).astype(np.float32)
        flat, radius = self._pixels.flatten(), self._radius
        for place in self._rng.permutation(flat.size):
            far = np.float32(0 if flat[place] > 0.5 else 1)
            spent = min(radius, abs(float(far - flat[place])))
            flat[place] += np.sign(far - flat[place]) * np.float32(spent)
            radius -= spent
            if radius <= 0:
                break
        return flat.reshape(self._pixels.shape), self._pixels + noise

    def pixels(self, keep: int, pixels: int) -> Copies:
        """Random pixels of random colours; hidden ones are grey."""
        order = self._rng.permutation(self._shape[0] * self._shape[1]).reshape(self._shape)
        hit = self._rng.permutation(order.ravel()).reshape(self._shape) < self._radius
        return self._copies(hit, order < keep)

    def band(self, width: int, columns: int) -> Copies:
        """A random square of random colours; hidden pixels are grey."""
        side, shape = int(self._radius), self._shape
        top, left = (int(self._rng.integers(max(1, size - side + 1))) for size in shape)
        hit, kept = np.zeros((2, *shape), dtype=np.bool_)
        hit[top : top + side, left : left + side] = True
        kept[:, (int(self._rng.integers(shape[1])) + np.arange(width)) % shape[1]] = True
        return self._copies(hit, kept)

    def _copies(self, hit: NDArray[np.bool_], kept: NDArray[np.bool_]) -> Copies:
        colours = self._rng.random(self._pixels.shape, dtype=np.float32)
        return np.where(hit, colours, self._pixels), np.where(kept, self._pixels, _GREY)


def data_uri(pixels: NDArray[Any], kind: str, quality: int, most: tuple[int, Image.Resampling] | None = None) -> str:
    """The image (3, height, width) as a data URI, its longest side at `most`; values outside [0, 1] become 0 or 1."""
    if pixels.dtype != np.uint8:
        pixels = np.round(pixels * 255).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(_AXES)))
    if most is not None:
        image.thumbnail((most[0], most[0]), most[1])
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
