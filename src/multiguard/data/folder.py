"""A directory of images and a CSV of labels: what most people have.

Two forms of the CSV are understood, told apart by its header:

- `file,labels`: the labels of an image in one field, separated by `;` (or another separator);
- `file,cat,dog,...`: one column a label, holding 0 or 1.

An optional column `split` names the split of each image.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from multiguard.data.labels import label_indices, label_positions
from multiguard.data.listed import Entry, ListedDataset
from multiguard.data.sample import Problem
from multiguard.data.table import EntryMaker, Row, Table, each, normal_name, read_table
from multiguard.errors import DataError
from multiguard.io.names import unknown_name

ALL = "all"
_RESERVED = ("file", "labels", "split")


def open_folder(
    root: Path,
    split: str = ALL,
    *,
    size: int | None = None,
    table: Path | None = None,
    separator: str = ";",
    label_names: Sequence[str] | None = None,
    faults: list[Problem] | None = None,
) -> ListedDataset:
    """The images that the CSV lists with their labels; an unlisted image is no part of the dataset.

    Args:
        root: The directory that the CSV's file names start from.
        split: A name that stands in the column `split`; "all" takes every row.
        size: Height and width to squash each image to; None keeps its own.
        table: The CSV; None takes labels.csv in `root`, or the only CSV there.
        separator: What stands between two labels in the column `labels`.
        label_names: The labels in the order wanted; None takes the header's order, or the alphabet's.
        faults: A list that takes the rows that cannot be used; None raises `DataError` at the first.
    """
    if not separator:
        raise DataError("folder: the separator is empty; give what stands between two labels, such as ;")
    listing = read_table(table or _find_table(root), faults)
    listing.require(["file"])
    labels_of = _label_reader(listing, separator)
    names = list(label_names) if label_names is not None else _all_labels(listing, separator)
    positions = label_positions(names, str(listing.path))
    known = "" if label_names is None else " (the known labels are the model's)"

    def entry(row: Row) -> Entry:
        name = normal_name(row.fields["file"])
        return Entry(name, root / name, label_indices(labels_of(row), positions, row.source, known=known))

    entries = each(_rows_of(listing, split), EntryMaker(entry), faults)
    return ListedDataset(f"folder:{root.name}/{split}", names, entries, size=size, home=root)


def folder_splits(root: Path, table: Path | None = None) -> tuple[str, ...]:
    """The splits that the CSV's column `split` names, sorted; none where it has no such column."""
    listing = read_table(table or _find_table(root), faults=[])
    return tuple(sorted({row.fields.get("split", "") for row in listing.rows} - {""}))


def _rows_of(listing: Table, split: str) -> list[Row]:
    rows = [row for row in listing.rows if split == ALL or row.fields.get("split") == split]
    if not rows and split != ALL:
        splits = sorted({row.fields.get("split", "") for row in listing.rows} - {""})
        raise DataError(f"{listing.path}: {unknown_name('split', split, [ALL, *splits])}")
    return rows


def _find_table(root: Path) -> Path:
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; give the directory of the images")
    usual = root / "labels.csv"
    tables = [usual] if usual.is_file() else sorted(root.glob("*.csv"))
    if len(tables) != 1:
        raise DataError(f"{root}: {len(tables)} CSV files; expected labels.csv, or name the table")
    return tables[0]


def _label_reader(listing: Table, separator: str) -> Callable[[Row], list[str]]:
    """How to read the labels of one row, by the form of the table."""
    if "labels" in listing.columns:
        return lambda row: _split_field(row.fields["labels"], separator)
    columns = _label_columns(listing)
    if not columns:
        raise DataError(f"{listing.path}: no column 'labels' and no 0/1 column a label beside 'file'")
    return lambda row: _marked(row, columns)


def _label_columns(listing: Table) -> list[str]:
    return [column for column in listing.columns if column not in _RESERVED]


def _split_field(field: str, separator: str) -> list[str]:
    return [name.strip() for name in field.split(separator) if name.strip()]


def _marked(row: Row, columns: Sequence[str]) -> list[str]:
    bad = [f"'{row.fields[column]}' under '{column}'" for column in columns if row.fields[column] not in ("0", "1")]
    if bad:
        raise DataError(f"{row.source}: {', '.join(bad)}; expected 0 or 1")
    return [column for column in columns if row.fields[column] == "1"]


def _all_labels(listing: Table, separator: str) -> list[str]:
    """Every label of the table, whatever the split, so that all splits share one order."""
    if "labels" in listing.columns:
        return sorted({name for row in listing.rows for name in _split_field(row.fields["labels"], separator)})
    return _label_columns(listing)
