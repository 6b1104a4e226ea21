"""Decoding: one picture file to one uint8 array (3, height, width), or a `DataError` with its path.

Every colour mode ends as RGB by one stated rule:

- grey and bilevel: the value is repeated in the three channels;
- CMYK and YCbCr: Pillow's conversion (Adobe's inverted CMYK JPEGs come out upright in colour);
- palette, and anything with an alpha channel: laid over white;
- 16 bits of grey: divided by 257 and rounded, so that 65535 becomes 255;
- 16 bits a channel in colour: the upper byte of each value, as Pillow reads it;
- a camera's EXIF orientation is applied, so that the picture stands as its viewer saw it.

Resizing squashes to a square (the aspect ratio is given up, no border is cut off), bicubic with antialiasing.
"""

import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from multiguard.errors import DataError, InvalidInputError

_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)
_SIXTEEN_BITS = 65535


def decoding_threads(workers: int | None) -> int:
    """So many threads, or one a core for None; fewer than one raises `InvalidInputError`."""
    if workers is not None and workers < 1:
        raise InvalidInputError(f"workers is {workers}; give 1 or more decoding threads, or none for one a core")
    return workers or os.cpu_count() or 1


def read_picture(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """The picture at `path` as (3, height, width) RGB; one that cannot be read whole raises `DataError`.

    Args:
        path: A file in any format that Pillow decodes.
        size: Height and width to squash the picture to; None keeps its own.
    """
    if size is not None and size < 1:
        raise InvalidInputError(f"the size is {size}; give a height and width of 1 pixel or more")
    if not path.is_file():
        raise DataError(f"{path}: no such picture; check the root folder and the list of files")
    try:
        with Image.open(path) as opened:
            picture = _to_rgb(ImageOps.exif_transpose(opened))
    except _UNREADABLE as error:
        raise DataError(f"{path}: not a readable picture ({error}); replace the file or leave it out") from error
    if size is not None and picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1))


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):
        picture = _eight_bits(picture)
    if picture.mode == "F":
        raise ValueError("floating-point pixels have no fixed white; save it as 8 or 16 bits")
    if picture.has_transparency_data:
        return _over_white(picture)
    return picture.convert("RGB")


def _eight_bits(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture)
    if values.size and (values.min() < 0 or values.max() > _SIXTEEN_BITS):
        raise ValueError(f"values {values.min()}..{values.max()} do not fit 16 bits")
    return Image.fromarray(np.round(values / 257).astype(np.uint8))


def _over_white(picture: Image.Image) -> Image.Image:
    layers = picture.convert("RGBA")
    white = Image.new("RGBA", layers.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layers).convert("RGB")
