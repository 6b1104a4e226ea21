"""Folders of images: with a CSV file of labels, as most people have them, or without labels, for prediction.

The CSV is UTF-8, its columns in any order, separated by commas, semicolons, bars or tabs, in one of two forms that its
header shows, and optionally with a column `split`:

- `file,labels`: the labels of an image in one field, separated by `;`, `,` or `|`;
- `file,cat,dog,...`: one column per label, holding 0 or 1.

The column of the images is called file, image, filename or path.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from multiguard.data.sample import FileDataset, ImageFile
from multiguard.errors import DataError, ImageError
from multiguard.io.files import read_regular
from multiguard.io.names import shorten_names, unknown_name

ALL = "all"
_FILE_COLUMNS = ("file", "image", "filename", "path")
_SEPARATORS = (";", ",", "|")
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Row:
    """One line of a table: its fields by column name."""

    source: str  # the file and the line, for messages
    fields: dict[str, str]


@dataclass(frozen=True)
class LabelTable:
    """A CSV file: its column names in order, and its rows."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def values(self, column: str) -> list[str]:
        """The distinct values of a column, sorted, without the empty one; none where there is no such column."""
        return sorted({row.fields.get(column, "") for row in self.rows} - {""})

    def files(
        self, column: str, split: str, make: Callable[[Row], ImageFile], everything: Sequence[str] = ()
    ) -> list[ImageFile]:
        """The image of each row of a split, or of all rows for a name of `everything`.

        A split without rows raises `DataError`, a second row for one image `ImageError`.
        """
        found: dict[Path, tuple[Row, ImageFile]] = {}
        for row in self.rows:
            if split not in everything and row.fields.get(column) != split:
                continue
            file = make(row)
            if file.path in found:
                first = found[file.path][0].source.rpartition(", ")[2]
                raise ImageError(row.source, f"image '{file.id}' is already listed in {first}; keep one")
            found[file.path] = row, file
        if not found:
            raise DataError(f"{self.path}: {unknown_name('split', split, [*everything, *self.values(column)])}")
        return [file for _, file in found.values()]


def open_folder(
    root: Path,
    split: str = ALL,
    *,
    size: int | None = None,
    table: Path | None = None,
    separator: str | None = None,
    label_names: Sequence[str] | None = None,
) -> FileDataset:
    """The images that the CSV lists with their labels; arguments as in `open_dataset`."""
    if separator == "":
        raise DataError("folder: the separator is empty; give the text between two labels, such as ;")
    listing = read_table(root, table)
    if (column := next((name for name in _FILE_COLUMNS if name in listing.columns), None)) is None:
        expected, header = ", ".join(_FILE_COLUMNS), ",".join(listing.columns)[:200]
        raise DataError(f"{listing.path}: no column of images ({expected}); its header is {header}")
    columns = [name for name in listing.columns if name not in (column, "labels", "split")]
    one_field = "labels" in listing.columns
    if not one_field and not columns:
        raise DataError(f"{listing.path}: no column 'labels' and no 0/1 column per label next to '{column}'")
    if separator is None:
        separator = _separator(listing, label_names) if one_field else _SEPARATORS[0]
    given = {row.source: _split_field(row, separator) if one_field else _marked(row, columns) for row in listing.rows}
    if label_names is not None:
        names = list(label_names)
    elif one_field:  # every label of the table, whatever the split, so that all splits share one order
        names = sorted({name for labels in given.values() for name in labels})
    else:
        names = columns
    if not one_field and (missing := [name for name in names if name not in listing.columns]):
        raise DataError(
            f"{listing.path}: no column for {len(missing)} of the model's labels: {shorten_names(missing)}; add a "
            "column of 0 and 1 for each"
        )
    indices = label_index(names, listing.path, "" if label_names is None else " (the known labels are the model's)")

    def make(row: Row) -> ImageFile:
        name = normal_name(row.fields[column])
        return ImageFile(name, root / name, indices(row, given[row.source]))

    chosen = "" if split == ALL else f", split {split}"
    note = "" if separator == _SEPARATORS[0] else f", labels separated by {separator}"
    files = listing.files("split", split, make, [ALL])
    return FileDataset(f"folder {root.absolute().name}{chosen}{note}", names, files, size=size, home=root)


def _separator(listing: LabelTable, label_names: Sequence[str] | None) -> str:
    """The separator that is in the fields of labels, of several the one under which all labels are the model's."""

    def fits(separator: str) -> bool:
        return label_names is None or all(
            set(label_names).issuperset(_split_field(row, separator)) for row in listing.rows
        )

    there = [one for one in _SEPARATORS if any(one in row.fields["labels"] for row in listing.rows)]
    if label_names is not None and fits("\n"):  # every field is one label
        there = []
    there = [one for one in there if fits(one)] or there
    if len(there) > 1:
        raise DataError(
            f"{listing.path}: the labels hold {' and '.join(there)}; name what separates them, as in --set separator=;"
        )
    return there[0] if there else _SEPARATORS[0]


def folder_splits(root: Path, table: Path | None = None) -> list[str]:
    """The splits that the CSV's column `split` names, sorted; none where it has no such column."""
    return read_table(root, table).values("split")


def _marked(row: Row, columns: Sequence[str]) -> list[str]:
    """The columns with a 1; anything else than 0 and 1 raises `ImageError`."""
    wrong = [f"'{row.fields[column]}' under '{column}'" for column in columns if row.fields[column] not in ("0", "1")]
    if wrong:
        raise ImageError(row.source, f"{', '.join(wrong)}; expected 0 or 1")
    return [column for column in columns if row.fields[column] == "1"]


def _split_field(row: Row, separator: str) -> list[str]:
    return [name.strip() for name in row.fields["labels"].split(separator) if name.strip()]


def open_images(
    source: str | Path | Sequence[str | Path], label_names: Sequence[str], *, size: int | None = None
) -> FileDataset:
    """Every image of a folder, or the files given, without labels; an unreadable one raises `ImageError` when read.

    A folder is searched with its subfolders for files with the suffix of an image; hidden ones are left out, links to
    folders are not followed. The id of an image is its path within the folder, or the name of its file.

    >>> from PIL import Image
    >>> Image.new("RGB", (4, 2)).save(out / "a.png")
    >>> images = open_images(out, ["cat", "dog"], size=8)
    >>> images.ids, images[0].image.shape
    (['a.png'], (3, 8, 8))
    """
    if isinstance(source, str | Path):
        folder = Path(source)
        files = [ImageFile(name, folder / name, ()) for name in find_images(folder)]
        return FileDataset(f"images {folder.absolute().name}", label_names, files, size, home=folder)
    paths = [Path(path) for path in source]
    if repeated := _repeated(path.name for path in paths):
        raise DataError(f"several files are named '{repeated}', and the name is the id; give their folder instead")
    return FileDataset("images", label_names, [ImageFile(path.name, path, ()) for path in paths], size, None)


def find_images(folder: Path) -> list[str]:
    """The paths of all images within a folder, as `open_images` finds them; none raises `DataError`."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a folder of images, or the files themselves")
    paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    visible = sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))
    files = [name for name in visible if name.lower().endswith(_SUFFIXES)]
    if not files:
        raise DataError(f"{folder}: no image in it or its subfolders; expected files ending in {', '.join(_SUFFIXES)}")
    return files


def read_table(root: Path, path: Path | None, default: str = "labels.csv", columns: Sequence[str] = ()) -> LabelTable:
    """The table at `path`, or the one called `default` in the folder of the images, or the only one there.

    A missing file or column, a repeated column or text that is not UTF-8 raises `DataError`, a bad row `ImageError`.
    """
    path = path or _find_table(root, default)
    try:
        text = read_regular(path).decode("utf-8-sig")
        first = text.partition("\n")[0]
        delimiter = next((one for one in (",", ";", "\t", "|") if one in first), ",")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
        header = tuple(name.strip() for name in next(reader, []))
        if repeated := _repeated(header):
            raise DataError(f"{path}: the column '{repeated}' is in the header twice; column names must differ")
        rows = tuple(_make_row(path, reader.line_num, values, header) for values in reader if values)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give the CSV file of labels") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not readable as a UTF-8 CSV file ({error})") from error
    if not header:
        raise DataError(f"{path}: the file, or its first line, is empty; expected a header such as file,labels")
    for column in columns:
        if column not in header:
            raise DataError(f"{path}: no column '{column}'; its header is {','.join(header)[:200]}")
    if not rows:
        raise DataError(f"{path}: no rows below the header; expected one row per image")
    return LabelTable(path, header, rows)


def _find_table(root: Path, default: str) -> Path:
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; give the folder of the images")
    tables = [root / default] if (root / default).is_file() else sorted(root.glob("*.csv"))
    if len(tables) != 1:
        raise DataError(f"{root}: {len(tables)} CSV files; expected {default}, or name the table")
    return tables[0]


def _make_row(path: Path, line: int, values: Sequence[str], header: Sequence[str]) -> Row:
    source = f"{path}, line {line}"
    if len(values) != len(header):
        raise ImageError(source, f"{len(values)} fields under {len(header)} columns; quote fields with its separator")
    return Row(source, {name: value.strip() for name, value in zip(header, values, strict=True)})


def normal_name(name: str) -> str:
    """A file's name in one spelling: `./a.png`, `x/../a.png` and `a.png` are one image."""
    return Path(os.path.normpath(name)).as_posix()


def label_index(
    names: Sequence[str], source: object, note: str = ""
) -> Callable[[Row, Iterable[str]], tuple[int, ...]]:
    """A function from a row and its label names to their sorted indices; a repeated name raises `DataError`.

    Names are looked up exactly; an unknown one raises `ImageError`, whose message ends in the note.
    """
    positions = {name: index for index, name in enumerate(names)}
    if repeated := _repeated(names):
        raise DataError(f"{source}: the label '{repeated}' is listed twice; label names must be unique")

    def find(row: Row, given: Iterable[str]) -> tuple[int, ...]:
        if unknown := sorted(set(given) - positions.keys()):
            others = f" and {len(unknown) - 1} more unknown labels" if unknown[1:] else ""
            raise ImageError(row.source, f"{unknown_name('label', unknown[0], positions)}{others}{note}")
        return tuple(sorted({positions[name] for name in given}))

    return find


def _repeated(names: Iterable[str]) -> str | None:
    """A name that is there twice; None if there is none."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
