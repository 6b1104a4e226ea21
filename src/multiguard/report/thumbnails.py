"""Small images as data URIs, for a page that carries them along."""

import base64
import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, features

from multiguard.data import Dataset, Sample
from multiguard.data.image import image_hash
from multiguard.data.sample import Progress
from multiguard.errors import DataError

Callback = Progress | None  # called with the number of thumbnails done and of all thumbnails
_AXES, _CHANNELS = (1, 2, 0), (1, 3)
_LONGEST_SIDE = 128
_QUALITY = 72


@dataclass(frozen=True)
class Thumbnail:
    """A small image as a data URI, with the height and width of the image it was made from."""

    uri: str
    height: int
    width: int


@dataclass
class Thumbnails:
    """The thumbnails by id, and why others are missing."""

    made: dict[str, Thumbnail] = field(default_factory=dict)
    replaced: int = 0  # their pixels are not those that were voted on
    not_images: int = 0  # rows of a table and the like


def make_thumbnails(images: Dataset, hashes: Mapping[str, str | None], progress: Callback = None) -> Thumbnails:
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
            thumbnails.made[image_id] = make_thumbnail(sample)
        elif sample is not None:
            thumbnails.replaced += 1
        if progress is not None:
            progress(done, len(hashes))
    return thumbnails


def _is_image(sample: Sample) -> bool:
    """Whether the input has the shape of an image: grey or RGB, channels first."""
    return sample.image.ndim == len(_AXES) and sample.image.shape[0] in _CHANNELS


def make_thumbnail(sample: Sample) -> Thumbnail:
    """The image, shrunk if larger than 128 pixels, as WebP or, where that is unavailable, JPEG."""
    scale = 1 if sample.image.dtype == np.uint8 else 255
    pixels = np.round(np.asarray(sample.image, dtype=np.float32) * scale).clip(0, 255).astype(np.uint8)
    pixels = np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(_AXES)))
    height, width = image.height, image.width
    image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Image.Resampling.LANCZOS)
    kind = "webp" if features.check("webp") else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, quality=_QUALITY)
    return Thumbnail(f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}", height, width)
