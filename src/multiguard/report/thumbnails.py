"""Small images as data URIs, for a page that carries them along."""

import base64
import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from multiguard.certify.noise import BandAblation, Gaussian, Noise, PixelAblation, Uniform
from multiguard.data import Dataset, Sample
from multiguard.data.image import image_hash
from multiguard.data.sample import Progress
from multiguard.errors import DataError

Floats32 = NDArray[np.float32]
Callback = Progress | None  # called with the number of thumbnails done and of all thumbnails
_AXES, _CHANNELS = (1, 2, 0), (1, 3)
_LONGEST_SIDE = 128
_QUALITY = 72
_GREY = np.float32(0.5)  # of hidden pixels


# What a perturbation of radius R and the noise look like: an illustration, one random example of each.
Look = Literal["perturbed", "noisy"]


@dataclass(frozen=True)
class Illustration:
    """How strong the illustrated perturbations are, and of how many images they are made."""

    radius: float  # of a random perturbation that the noise's attacker can make, at full size
    noise: Noise
    most: int = 100  # a page grows by about 10 kB per image


@dataclass(frozen=True)
class Thumbnail:
    """A small image as a data URI, with the height and width of the image it was made from."""

    uri: str
    height: int
    width: int
    looks: Mapping[Look, str] = field(default_factory=dict)  # the same image perturbed, as data URIs


@dataclass
class Thumbnails:
    """The thumbnails by id, and why others are missing."""

    made: dict[str, Thumbnail] = field(default_factory=dict)
    replaced: int = 0  # their pixels are not those that were voted on
    not_images: int = 0  # rows of a table and the like


def make_thumbnails(
    images: Dataset,
    hashes: Mapping[str, str | None],
    illustration: Illustration | None = None,
    progress: Callback = None,
) -> Thumbnails:
    """A thumbnail of at most 128 pixels per side for each id whose image exists and is the one that was voted on.

    `hashes` are the ids, each with the `image_hash` of what was voted on; None where it is unknown.
    """
    indices = {image_id: index for index, image_id in enumerate(images.ids)}
    thumbnails = Thumbnails()
    for done, (image_id, expected) in enumerate(hashes.items(), start=1):
        sample = None
        if image_id in indices:
            with suppress(DataError):  # the file is missing or broken; the certificate holds without it
                sample = images[indices[image_id]]
        if sample is not None and not _is_image(sample):
            thumbnails.not_images += 1
        elif sample is not None and expected in (None, image_hash(sample.image)):
            illustrated = illustration if illustration and len(thumbnails.made) < illustration.most else None
            thumbnails.made[image_id] = make_thumbnail(sample, illustrated, seed=done)
        elif sample is not None:
            thumbnails.replaced += 1
        if progress is not None:
            progress(done, len(hashes))
    return thumbnails


def _is_image(sample: Sample) -> bool:
    """Whether the input has the shape of an image: grey or RGB, channels first."""
    return sample.image.ndim == len(_AXES) and sample.image.shape[0] in _CHANNELS


def make_thumbnail(sample: Sample, illustration: Illustration | None = None, *, seed: int = 0) -> Thumbnail:
    """The image, shrunk if larger than 128 pixels, as WebP or, where that is unavailable, JPEG."""
    pixels = np.asarray(sample.image, dtype=np.float32)
    pixels = pixels / np.float32(255) if sample.image.dtype == np.uint8 else pixels
    looks = {} if illustration is None else perturbed_copies(pixels, illustration, seed)
    # Averaging would hide noise: pixels of perturbed copies are left out, not mixed.
    uris = {look: _uri(copy, Image.Resampling.NEAREST) for look, copy in looks.items()}
    return Thumbnail(_uri(pixels, Image.Resampling.LANCZOS), pixels.shape[1], pixels.shape[2], uris)


def perturbed_copies(pixels: Floats32, illustration: Illustration, seed: int) -> dict[Look, Floats32]:
    """The image with a random perturbation of this radius, and with noise; values are not clipped, hidden ones grey."""
    rng, noise, radius = np.random.default_rng(seed), illustration.noise, illustration.radius
    shape = pixels.shape[1:]
    match noise:
        case Gaussian():
            direction, gaussian = (rng.standard_normal(pixels.shape, dtype=np.float32) for _ in range(2))
            norm = float(np.linalg.norm(direction.astype(np.float64)))
            perturbed = pixels + np.float32(radius / norm) * direction
            return {"perturbed": perturbed, "noisy": pixels + np.float32(noise.sigma) * gaussian}
        case Uniform():
            uniform = rng.uniform(-noise.half_width, noise.half_width, pixels.shape).astype(np.float32)
            return {"perturbed": _few_numbers(pixels, radius, rng), "noisy": pixels + uniform}
        case PixelAblation():
            order = rng.permutation(shape[0] * shape[1]).reshape(shape)
            hit, kept = rng.permutation(order.ravel()).reshape(shape) < radius, order < noise.keep
        case BandAblation():
            hit, kept = _square(shape, int(radius), rng), np.zeros(shape, dtype=np.bool_)
            kept[:, (int(rng.integers(shape[1])) + np.arange(noise.width)) % shape[1]] = True
    colours = rng.random(pixels.shape, dtype=np.float32)
    return {"perturbed": np.where(hit, colours, pixels), "noisy": np.where(kept, pixels, _GREY)}


def _few_numbers(pixels: Floats32, radius: float, rng: np.random.Generator) -> Floats32:
    """Random numbers of the image turned to the farther of 0 and 1, one after the other, until the norm is spent."""
    flat = pixels.flatten()
    for place in rng.permutation(flat.size):
        far = np.float32(0 if flat[place] > 0.5 else 1)
        spent = min(radius, abs(float(far - flat[place])))
        flat[place] += np.sign(far - flat[place]) * np.float32(spent)
        radius -= spent
        if radius <= 0:
            break
    return flat.reshape(pixels.shape)


def _square(shape: tuple[int, ...], side: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The mask of a random square inside the image."""
    top, left = (int(rng.integers(max(1, size - side + 1))) for size in shape)
    mask = np.zeros(shape, dtype=np.bool_)
    mask[top : top + side, left : left + side] = True
    return mask


def _uri(pixels: Floats32, resampling: Image.Resampling) -> str:
    values = np.round(pixels * 255).clip(0, 255).astype(np.uint8)
    values = np.broadcast_to(values, (3, *values.shape[1:]))
    image = Image.fromarray(np.ascontiguousarray(values.transpose(_AXES)))
    image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), resampling)
    kind = "webp" if features.check("webp") else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, quality=_QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
