"""Decoding: one image file to one uint8 array (3, height, width), or a `ImageError` with its path.

A file is decoded by its content, whatever its name ends in. Every colour mode ends as RGB by one stated rule:

- grey and bilevel: the value is repeated in the three channels;
- CMYK and YCbCr: Pillow's conversion (Adobe's inverted CMYK JPEGs come out upright in colour);
- palette, and anything with an alpha channel or a transparent colour: laid over white;
- 16 bits of grey: divided by 257 and rounded, so that 65535 becomes 255;
- 16 bits a channel in colour: the upper byte of each value, as Pillow reads it;
- a camera's EXIF orientation is applied, so that the image stands as its viewer saw it.

What would have to be guessed is refused: which frame of several is meant, how bright 32-bit or floating-point values
are, what the missing rest of a file showed. So is an image of too many pixels, before any of them is decoded.

Resizing squashes to a square (the aspect ratio is given up, no border is cut off), bicubic with antialiasing; an image
of one pixel becomes a square of its colour.
"""

import errno
import io
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from multiguard.errors import DataError, ImageError, InvalidInputError

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
# A quarter of a gigabyte as RGB, the number at which Pillow begins to warn.
MOST_PIXELS = 89_478_485
MOST_BYTES = 1 << 30
_SIXTEEN_BITS = 65535
# Whole numbers that Pillow keeps in 32 bits are 16-bit ones in these formats, and of no known white in others.
_WIDENED = ("PNG", "PPM")
# The system is short of something, or a network share is gone.
_NOT_ITS_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN)


def decoding_threads(workers: int | None) -> int:
    """So many threads, or one a core for None; fewer than one raises `InvalidInputError`."""
    if workers is not None and workers < 1:
        raise InvalidInputError(f"workers is {workers}; give 1 or more decoding threads, or none for one a core")
    return workers or os.cpu_count() or 1


def read_image(path: Path, size: int | None = None, *, home: Path | None = None) -> NDArray[np.uint8]:
    """The image at `path` as (3, height, width) RGB; one that cannot be read whole raises `ImageError`.

    What is not the image's fault raises another error: its folder is gone, or the system has no more files to open.

    Args:
        path: A file in one of `FORMATS`, of at most `MOST_PIXELS` pixels and `MOST_BYTES` bytes.
        size: Height and width to squash the image to; None keeps its own.
        home: The folder that the file must lie in after all links are followed; None for anywhere.
    """
    if size is not None and size < 1:
        raise InvalidInputError(f"the size is {size}; give a height and width of 1 pixel or more")
    try:
        _check_file(path, home)
        image = _decoded(path)
        if size is not None and image.size != (size, size):
            image = image.resize((size, size), Image.Resampling.BICUBIC)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # whatever a decoder stumbles over, the file is at fault
        if isinstance(error, OSError) and error.errno in _NOT_ITS_FAULT:
            raise DataError(f"{path}: cannot be read now ({error.strerror}); run it again when it can") from error
        raise ImageError(path, f"not a readable image ({_cause(error)}); replace the file or leave it out") from error
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1))


def _check_file(path: Path, home: Path | None) -> None:
    """Pass only if a file with something in it lies there; no pipe is opened, since that could wait for ever."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        _check_home(home)
        why = "the link leads to no file" if path.is_symlink() else "no such image"
        raise ImageError(path, f"{why}; check the root folder and the list of files") from None
    if home is not None and not path.resolve().is_relative_to(home.resolve()):
        raise ImageError(path, "lies outside of the images' folder, or is a link that leads there; copy it into it")
    if S_ISDIR(found.st_mode):
        raise ImageError(path, "a folder, not an image; name the files of images")
    if not S_ISREG(found.st_mode):
        raise ImageError(path, "a pipe, socket or device, not an image; leave it out")
    if found.st_size == 0:
        raise ValueError("the file is empty")
    if found.st_size > MOST_BYTES:
        raise ValueError(f"{found.st_size:,} bytes are more than the {MOST_BYTES:,} allowed; shrink it")


def _check_home(home: Path | None) -> None:
    if home is not None and not home.is_dir():
        raise DataError(f"{home}: no such folder of images; check the root folder")


def _decoded(path: Path) -> Image.Image:
    # From memory: a decoder that asks a file for the four gigabytes that a damaged length names is given them to fill.
    with Image.open(io.BytesIO(path.read_bytes()), formats=FORMATS) as opened:
        _check_head(opened)
        return _to_rgb(ImageOps.exif_transpose(opened))


def _check_head(opened: Image.Image) -> None:
    """Refuse, before any pixel is decoded, what is too large or would have to be guessed."""
    width, height = opened.size
    if width * height > MOST_PIXELS:
        raise ValueError(f"{width}x{height} pixels are more than the {MOST_PIXELS:,} allowed; shrink it")
    if width * height == 0:
        raise ValueError("it has no pixels")
    # Behind a camera's JPEG there may be further images, such as brightness maps; viewers show the first.
    if getattr(opened, "is_animated", False) and opened.format != "MPO":
        raise ValueError("it has several frames or pages, and which is meant is not known; save that one alone")
    if opened.mode == "F":
        raise ValueError("floating-point pixels have no fixed white; save it as 8 or 16 bits")
    if opened.mode == "I" and opened.format not in _WIDENED:
        raise ValueError("32-bit whole numbers have no fixed white; save it as 8 or 16 bits")


def _cause(error: Exception) -> str:
    """What is wrong, in one line that names no file."""
    if isinstance(error, UnidentifiedImageError):
        return f"its content is in none of the formats {', '.join(FORMATS)}"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it has more than the {MOST_PIXELS:,} pixels allowed; shrink it"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split()) or type(error).__name__


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    if image.has_transparency_data:
        return _over_white(image)
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    values, clear = np.asarray(image), image.info.get("transparency")
    if values.min() < 0 or values.max() > _SIXTEEN_BITS:
        raise ValueError(f"values {values.min()}..{values.max()} do not fit 16 bits")
    if clear is not None:
        values = np.where(values == clear, _SIXTEEN_BITS, values)
    return Image.fromarray(np.round(values / 257).astype(np.uint8))


def _over_white(image: Image.Image) -> Image.Image:
    layers = image.convert("RGBA")
    white = Image.new("RGBA", layers.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layers).convert("RGB")
