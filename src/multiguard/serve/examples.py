"""Images that the page offers to start with."""

from dataclasses import dataclass
from pathlib import Path

from multiguard.data.image import read_image
from multiguard.data.sample import Sample
from multiguard.errors import ImageError, InvalidInputError
from multiguard.report.thumbnails import make_thumbnail

_MOST = 8
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


@dataclass(frozen=True)
class Example:
    """An image that the page offers."""

    name: str
    content: bytes  # of its file
    thumbnail: str  # a data URI


def folder_examples(folder: Path) -> tuple[Example, ...]:
    """The first few images of a folder, by name; `InvalidInputError` if there is none."""
    if not folder.is_dir():
        raise InvalidInputError(f"examples is {folder}, which is not a folder")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    found: list[Example] = []
    for path in files:
        if len(found) == _MOST:
            break
        try:
            found.append(make_example(path))
        except ImageError:  # the others may do
            continue
    if not found:
        raise InvalidInputError(f"examples is {folder}, which holds no readable image")
    return tuple(found)


def make_example(path: Path) -> Example:
    """An image file as an example."""
    thumbnail = make_thumbnail(Sample(path.name, read_image(path), ()))
    return Example(path.stem.replace("_", " ").replace("-", " "), path.read_bytes(), thumbnail.uri)
