"""Small images as data URIs, for a page that carries them along."""

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from multiguard.data import Dataset, Sample
from multiguard.errors import DataError
from multiguard.votes import image_hash

_LONGEST_SIDE = 128
_QUALITY = 72


@dataclass(frozen=True)
class Thumbnail:
    """A small image.

    Attributes:
        uri: It, as a data URI.
        height: The height of the image that it was made from.
        width: The width of the image that it was made from.
    """

    uri: str
    height: int
    width: int


@dataclass
class Thumbnails:
    """The thumbnails that could be made, by id, and how many could not because another image lies there now."""

    made: dict[str, Thumbnail] = field(default_factory=dict)
    replaced: int = 0


def make_thumbnails(
    images: Dataset, hashes: Mapping[str, str | None], progress: Callable[[int, int], None] | None = None
) -> Thumbnails:
    """A thumbnail of at most 128 pixels a side for each id whose image is there, and is the one that was voted on.

    Args:
        images: Where they come from.
        hashes: The ids, each with the `image_hash` of what was voted on; None where that is not known.
        progress: Called with the number of ids done and of all ids.
    """
    places = {image_id: place for place, image_id in enumerate(images.ids)}
    found = Thumbnails()
    for done, (image_id, known) in enumerate(hashes.items(), start=1):
        sample = _read(images, places[image_id]) if image_id in places else None
        if sample is not None and known in (None, image_hash(sample.image)):
            found.made[image_id] = make_thumbnail(sample)
        elif sample is not None:
            found.replaced += 1
        if progress is not None:
            progress(done, len(hashes))
    return found


def _read(images: Dataset, place: int) -> Sample | None:
    """The image, or None where its file is gone or spoilt: the certificate stands without it."""
    try:
        return images[place]
    except DataError:
        return None


def make_thumbnail(sample: Sample) -> Thumbnail:
    """The sample's image, shrunk where it is larger than 128 pixels, as WebP or, failing that, JPEG."""
    image = Image.fromarray(np.ascontiguousarray(_as_bytes(sample.image).transpose(1, 2, 0)))
    height, width = image.height, image.width
    image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Image.Resampling.LANCZOS)
    kind = "webp" if features.check("webp") else "jpeg"
    written = io.BytesIO()
    image.save(written, kind, quality=_QUALITY)
    return Thumbnail(f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}", height, width)


def _as_bytes(image: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.uint8]:
    scale = 1 if image.dtype == np.uint8 else 255
    return np.round(np.asarray(image, dtype=np.float32) * scale).clip(0, 255).astype(np.uint8)
