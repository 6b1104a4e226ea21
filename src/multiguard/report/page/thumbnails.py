"""Small pictures as data URIs, for a page that carries them along."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from multiguard.data import Dataset, Sample
from multiguard.errors import DataError

_LONGEST_SIDE = 128
_QUALITY = 72


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Attributes:
        uri: It, as a data URI.
        height: The height of the picture that it was made from.
        width: The width of the picture that it was made from.
    """

    uri: str
    height: int
    width: int


def make_thumbnails(
    pictures: Dataset, ids: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> dict[str, Thumbnail]:
    """A thumbnail of at most 128 pixels a side for each id whose picture is there and can be read."""
    places = {image_id: place for place, image_id in enumerate(pictures.ids)}
    made: dict[str, Thumbnail] = {}
    for done, image_id in enumerate(ids, start=1):
        if image_id in places and (sample := _read(pictures, places[image_id])) is not None:
            made[image_id] = make_thumbnail(sample)
        if progress is not None:
            progress(done, len(ids))
    return made


def _read(pictures: Dataset, place: int) -> Sample | None:
    """The picture, or None where its file is gone or spoilt: the certificate stands without it."""
    try:
        return pictures[place]
    except DataError:
        return None


def make_thumbnail(sample: Sample) -> Thumbnail:
    """The sample's picture, shrunk where it is larger than 128 pixels, as WebP or, failing that, JPEG."""
    picture = Image.fromarray(np.ascontiguousarray(_as_bytes(sample.image).transpose(1, 2, 0)))
    height, width = picture.height, picture.width
    picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Image.Resampling.LANCZOS)
    kind = "webp" if features.check("webp") else "jpeg"
    written = io.BytesIO()
    picture.save(written, kind, quality=_QUALITY)
    return Thumbnail(f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}", height, width)


def _as_bytes(image: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.uint8]:
    scale = 1 if image.dtype == np.uint8 else 255
    return np.round(np.asarray(image, dtype=np.float32) * scale).clip(0, 255).astype(np.uint8)
