"""Decoding an image file into one uint8 array (3, height, width), or an `ImageError` that names the file.

A file is decoded by its content, whatever its name ends in. Each colour mode becomes RGB by one fixed rule: grey in all
three channels, CMYK by Pillow, transparency over white, 16 bits of grey divided by 257, the EXIF orientation applied.
What would have to be guessed is refused: one of several frames, the white of 32-bit or floating-point values, the
missing part of a file. Too many pixels are refused before any is decoded. Resizing squashes to a square, bicubic.
"""

import errno
import hashlib
import io
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from multiguard.errors import DataError, ImageError, InvalidInputError
from multiguard.io.config import MAX_SIDE
from multiguard.io.files import read_regular, real_path

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 89_478_485  # a quarter of a gigabyte as RGB, where Pillow begins to warn
MAX_BYTES = 1 << 30
_MAX_UINT16 = 65535
# Pillow keeps 16-bit integers of these formats in 32 bits; 32-bit integers of other formats have no known white.
_SIXTEEN_BIT_FORMATS = ("PNG", "PPM")
# The system is short of a resource, or a network drive is gone: no image is to blame.
_SYSTEM_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN)


def decoding_threads(workers: int | None) -> int:
    """The number of decoding threads, one per core for None; fewer than 1 raises `InvalidInputError`."""
    if workers is not None and workers < 1:
        raise InvalidInputError(f"workers is {workers}; give at least 1 decoding thread, or none for one per core")
    return workers or os.cpu_count() or 1


def check_size(size: object) -> None:
    """Raises `InvalidInputError` unless images can be resized to this height and width; None keeps their own."""
    if size is None:
        return
    if isinstance(size, int | np.integer) and not isinstance(size, bool) and 1 <= size <= MAX_SIDE:
        return
    huge = isinstance(size, int) and abs(size) >= 10**18
    given = "a number of more than 18 digits" if huge else repr(size)
    raise InvalidInputError(f"the size is {given}; give one number of 1 to {MAX_SIDE} pixels for height and width")


def image_hash(image: NDArray[np.generic]) -> str:
    """The sha256 of a decoded image: another size, decoder, dtype or scale changes it.

    >>> image_hash(np.zeros((3, 2, 2), dtype=np.uint8))[:12]
    'd6a90be827a1'
    """
    return hashlib.sha256(f"{image.dtype} {image.shape};".encode() + np.ascontiguousarray(image).tobytes()).hexdigest()


def read_image(path: Path, size: int | None = None, *, home: Path | None = None) -> NDArray[np.uint8]:
    """The image as (3, height, width) RGB, decoded completely; otherwise it raises `ImageError`.

    What is not the image's fault raises another error: its folder is gone, or the system cannot open more files.
    `size` is the height and width to resize to, `home` the folder that must hold the file after links are resolved.

    >>> Image.new("RGB", (4, 2), "red").save(out / "red.png")
    >>> read_image(out / "red.png").shape, read_image(out / "red.png", 8)[:, 0, 0].tolist()
    ((3, 2, 4), [255, 0, 0])
    """
    return decode_image(read_image_bytes(path, home=home), size, source=path)


def read_image_bytes(path: Path, *, home: Path | None = None) -> bytes:
    """The bytes of an image file, for `decode_image`; arguments and errors as in `read_image`."""
    try:
        _check_file(path, home)
        # Decode from memory: from a file, a decoder would allocate the 4 GB that a damaged length field claims.
        return read_regular(path, MAX_BYTES)
    except (DataError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS:
            raise DataError(f"{path}: cannot be read now ({error.strerror}); run the command again later") from error
        raise _unreadable(path, error) from error


def decode_image(
    content: bytes, size: int | None = None, *, source: object = "the image", most_pixels: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """As `read_image`, from the bytes of a file; `source` names it in an `ImageError`."""
    check_size(size)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            return image_pixels(opened, size, most_pixels=most_pixels)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # whatever a decoder raises, the file is to blame
        raise _unreadable(source, error, most_pixels) from error


def image_pixels(image: Image.Image, size: int | None = None, *, most_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """A PIL image as (3, height, width), by the rules for files; one whose pixels are unclear raises `ValueError`."""
    _check_header(image, most_pixels)
    image = _to_rgb(ImageOps.exif_transpose(image))
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1))


def _unreadable(source: object, error: Exception, most_pixels: int = MAX_PIXELS) -> ImageError:
    cause = _cause(error, most_pixels)
    return ImageError(source, f"not a readable image ({cause}); replace the file or leave it out")


def _check_file(path: Path, home: Path | None) -> None:
    """Raises unless this is a regular file with content; a pipe is never opened, since reading it may never end."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if home is not None and not home.is_dir():
            raise DataError(f"{home}: no such folder of images; check the root folder") from None
        reason = "the link points to no file" if path.is_symlink() else "no such image"
        raise ImageError(path, f"{reason}; check the root folder and the list of files") from None
    if home is not None and not real_path(path).is_relative_to(real_path(home)):
        raise ImageError(path, "outside the image folder, directly or through a link; copy it into the folder")
    if S_ISDIR(state.st_mode):
        raise ImageError(path, "a folder, not an image; list image files only")
    if not S_ISREG(state.st_mode):
        raise ImageError(path, "a pipe, socket or device, not an image; leave it out")
    if state.st_size == 0:
        raise ValueError("the file is empty")


def _check_header(opened: Image.Image, most_pixels: int) -> None:
    """Raises, before any pixel is decoded, where the image is too large or ambiguous."""
    width, height = opened.size
    if width * height > most_pixels:
        raise ValueError(f"{width}x{height} pixels are more than the {most_pixels:,} allowed; shrink it")
    if width * height == 0:
        raise ValueError("it has no pixels")
    # A camera's JPEG (MPO) may hold further images, such as brightness maps; viewers show the first.
    if getattr(opened, "is_animated", False) and opened.format != "MPO":
        raise ValueError("several frames or pages, and which one is meant is unknown; save that one alone")
    if opened.mode == "F":
        raise ValueError("floating-point pixels have no fixed white; save it as 8 or 16 bits")
    if opened.mode == "I" and opened.format not in _SIXTEEN_BIT_FORMATS:
        raise ValueError("32-bit integers have no fixed white; save it as 8 or 16 bits")


def _cause(error: Exception, most_pixels: int) -> str:
    """What is wrong, in one line without the file name."""
    if isinstance(error, UnidentifiedImageError):
        return f"the content is in none of the formats {', '.join(FORMATS)}"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"more than the {most_pixels:,} pixels allowed; shrink it"
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(message.split()) or type(error).__name__


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layers.size, (255, 255, 255, 255)), layers)
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    values, clear = np.asarray(image), image.info.get("transparency")
    if values.min() < 0 or values.max() > _MAX_UINT16:
        raise ValueError(f"values {values.min()}..{values.max()} do not fit 16 bits")
    if clear is not None:
        values = np.where(values == clear, _MAX_UINT16, values)
    return Image.fromarray(np.round(values / 257).astype(np.uint8))
