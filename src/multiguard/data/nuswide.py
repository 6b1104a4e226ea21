"""NUS-WIDE in the CSV form of the released split: `filepath,label,split_name` beside Concepts81.txt."""

import ast
from pathlib import Path

from multiguard.data.labels import label_indices, label_positions
from multiguard.data.listed import Entry, ListedDataset, read_lines
from multiguard.data.sample import Problem
from multiguard.data.table import EntryMaker, Row, each, normal_name, read_table
from multiguard.errors import DataError
from multiguard.io.names import unknown_name

NUSWIDE_CONCEPTS = 81
_COLUMNS = ("filepath", "label", "split_name")


def open_nuswide(
    root: Path,
    split: str = "val",
    *,
    size: int | None = None,
    table: Path | None = None,
    faults: list[Problem] | None = None,
) -> ListedDataset:
    """NUS-WIDE's images of one split with their concepts, in the order of Concepts81.txt.

    Args:
        root: The folder of the CSV and Concepts81.txt; images lie as the CSV names them, or below `images`.
        split: A name that stands in the column `split_name`; the released split has train and val.
        size: Height and width to squash each image to; None keeps its own.
        table: The CSV; None takes nus_wid_data.csv, or the only CSV in `root`.
        faults: A list that takes the rows that cannot be used; None raises `DataError` at the first.
    """
    concepts = read_lines(root / "Concepts81.txt")
    if len(concepts) != NUSWIDE_CONCEPTS:
        raise DataError(f"{root / 'Concepts81.txt'}: {len(concepts)} concepts; expected {NUSWIDE_CONCEPTS}, one a line")
    positions = label_positions(concepts, str(root / "Concepts81.txt"))
    listing = read_table(table or _find_table(root), faults)
    listing.require(_COLUMNS)
    splits = sorted({row.fields["split_name"] for row in listing.rows})
    if split not in splits:
        raise DataError(f"nuswide: {unknown_name('split', split, splits)}")
    chosen = [row for row in listing.rows if row.fields["split_name"] == split]

    def entry(row: Row) -> Entry:
        name = normal_name(row.fields["filepath"].replace("\\", "/"))
        return Entry(name, _image(root, name), label_indices(_concepts(row), positions, row.source))

    entries = each(chosen, EntryMaker(entry), faults)
    return ListedDataset(f"nuswide/{split}", concepts, entries, size=size, home=root)


def _find_table(root: Path) -> Path:
    official = root / "nus_wid_data.csv"
    tables = [official] if official.is_file() else sorted(root.glob("*.csv"))
    if len(tables) != 1:
        raise DataError(f"{root}: {len(tables)} CSV files; expected nus_wid_data.csv, or name the table")
    return tables[0]


def _image(root: Path, name: str) -> Path:
    direct = root / name
    below = root / "images" / name
    try:
        return below if below.is_file() and not direct.is_file() else direct
    except OSError:  # a name that no file can have; reading it says so
        return direct


def _concepts(row: Row) -> list[str]:
    """The concept names in a field such as "['sky', 'clouds']"."""
    text = row.fields["label"]
    try:
        names = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the latter two where it is nested without end
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{row.source}: label {text[:80]!r} is not a list of names such as \"['sky', 'clouds']\"")
    return names
