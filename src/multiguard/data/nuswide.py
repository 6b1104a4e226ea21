"""NUS-WIDE in the CSV form of the released split: `filepath,label,split_name`, and Concepts81.txt."""

import ast
from pathlib import Path

from multiguard.data.image_folder import Row, label_index, normal_name, read_table
from multiguard.data.sample import FileDataset, ImageFile
from multiguard.errors import DataError, ImageError
from multiguard.io.files import read_lines

NUSWIDE_CONCEPTS = 81
_COLUMNS = ("filepath", "label", "split_name")


def open_nuswide(root: Path, split: str = "val", *, size: int | None = None, table: Path | None = None) -> FileDataset:
    """The NUS-WIDE images of one split with their concepts, in the order of Concepts81.txt.

    Images are where the CSV says, or in the folder `images`. Arguments as in `open_dataset`.
    """
    path = root / "Concepts81.txt"
    concepts = read_lines(path)
    if len(concepts) != NUSWIDE_CONCEPTS:
        raise DataError(f"{path}: {len(concepts)} concepts; expected {NUSWIDE_CONCEPTS}, one per line")
    indices = label_index(concepts, path)
    listing = read_table(root, table, default="nus_wid_data.csv", columns=_COLUMNS)

    def make(row: Row) -> ImageFile:
        name = normal_name(row.fields["filepath"].replace("\\", "/"))
        return ImageFile(name, _image_path(root, name), indices(row, _read_concepts(row)))

    return FileDataset(f"nuswide {split}", concepts, listing.files("split_name", split, make), size=size, home=root)


def _image_path(root: Path, name: str) -> Path:
    direct, below = root / name, root / "images" / name
    try:
        return below if below.is_file() and not direct.is_file() else direct
    except OSError:  # a name that no file can have; reading it raises ImageError
        return direct


def _read_concepts(row: Row) -> list[str]:
    """The concept names in a field such as "['sky', 'clouds']"."""
    text = row.fields["label"]
    try:
        names = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two where it is nested too deeply
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ImageError(row.source, f"label {text[:80]!r} is not a list of names such as \"['sky', 'clouds']\"")
    return names
