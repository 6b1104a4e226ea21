"""Images without labels: a folder or a few files, for prediction and for votes without ground truth."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from multiguard.data.listed import Entry, ListedDataset
from multiguard.errors import DataError

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def open_images(
    source: str | Path | Sequence[str | Path], label_names: Sequence[str], *, size: int | None = None
) -> ListedDataset:
    """Every image of a folder, or the files given, without labels; an unreadable one raises `DataError` when read.

    Args:
        source: A folder, searched with all its subfolders for files named as images are (.jpg, .png, ...; hidden ones
            are left out, and links to folders are not followed), or image files. The id of an image is its path
            within the folder, or the name of its file.
        label_names: The labels of the classifier that will look at them.
        size: Height and width to squash each image to; None keeps its own.
    """
    if isinstance(source, str | Path):
        folder = Path(source)
        return ListedDataset(f"images:{folder.name}", label_names, _entries_in(folder), size=size, home=folder)
    return ListedDataset("images", label_names, _entries_of([Path(path) for path in source]), size=size)


def _entries_in(folder: Path) -> list[Entry]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a directory of images, or the files themselves")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    entries = [Entry(name, folder / name, ()) for name in names if _is_image(name)]
    if not entries:
        raise DataError(f"{folder}: no image in it or below it; expected files ending in {', '.join(_SUFFIXES)}")
    return entries


def _entries_of(paths: Sequence[Path]) -> list[Entry]:
    names = Counter(path.name for path in paths)
    for name, times in names.items():
        if times > 1:
            raise DataError(f"{times} of the files are named '{name}', and a name is an id; give their folder instead")
    return [Entry(path.name, path, ()) for path in paths]


def _is_image(name: str) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    return not hidden and name.lower().endswith(_SUFFIXES)
