"""Images that the page offers to start with."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import multiguard.data
from multiguard.data.image import MAX_BYTES, read_image
from multiguard.data.sample import Sample
from multiguard.errors import ImageError, InvalidInputError
from multiguard.io.files import read_regular
from multiguard.report.thumbnails import make_thumbnail

_MOST = 8
_PHOTOS = Path(multiguard.data.__file__).parent / "photos"
_PHOTO_SIZE = 64  # pixels per side
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


@dataclass(frozen=True)
class Example:
    """An image that the page offers."""

    name: str
    content: bytes  # of its file
    thumbnail: str  # a data URI


def find_examples(folder: Path | None, size: int) -> tuple[Example, ...]:
    """The first few images of a folder, by name; without a folder the package's photos, for models that take photos.

    Args:
        folder: The folder; `InvalidInputError` if it holds no readable image.
        size: Height and width of the model's images; for small ones photos say nothing.
    """
    if folder is None:
        return tuple(_read(_PHOTOS)) if size >= _PHOTO_SIZE and _PHOTOS.is_dir() else ()
    if not folder.is_dir():
        raise InvalidInputError(f"examples is {folder}, which is not a folder")
    found = tuple(_read(folder))
    if not found:
        raise InvalidInputError(f"examples is {folder}, which holds no readable image")
    return found


def _read(folder: Path) -> Iterator[Example]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    for path in files[:_MOST]:
        with suppress(ImageError):  # the others may do
            yield make_example(path)


def make_example(path: Path) -> Example:
    """An image file as an example."""
    thumbnail, *_ = make_thumbnail(Sample(path.name, read_image(path), ()))
    return Example(path.stem.replace("_", " ").replace("-", " "), read_regular(path, MAX_BYTES), thumbnail)
