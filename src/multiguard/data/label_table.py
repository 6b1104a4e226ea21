"""Tables of labels as people have them: UTF-8 CSV files in any column order."""

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from multiguard.data.sample import ImageFile
from multiguard.errors import DataError, ImageError
from multiguard.io.files import read_regular
from multiguard.io.names import UnknownNames, unknown_name


@dataclass(frozen=True)
class Row:
    """One line of a table: its fields by column name."""

    source: str  # the file and the line, for messages
    line: int
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

    def split_rows(self, column: str, split: str, everything: Sequence[str] = ()) -> Sequence[Row]:
        """The rows of a split, or all for a name of `everything`; a split without rows raises `DataError`."""
        rows = [row for row in self.rows if split in everything or row.fields.get(column) == split]
        if not rows and split not in everything:
            raise DataError(f"{self.path}: {unknown_name('split', split, [*everything, *self.values(column)])}")
        return rows


def read_table(root: Path, path: Path | None, *, default: str, columns: Sequence[str]) -> LabelTable:
    """The table at `path`; a missing file or column, a repeated column or text that is not UTF-8 raises `DataError`.

    A row with the wrong number of fields raises `ImageError`. Without a path, the table is the one called `default` in
    the folder of the images, or the only one there.
    """
    path = path or _find_table(root, default)
    try:
        text = read_regular(path).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = tuple(name.strip() for name in next(reader, []))
        if repeated := [name for name, count in Counter(header).items() if count > 1]:
            raise DataError(f"{path}: the column '{repeated[0]}' is in the header twice; column names must differ")
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


def list_images(rows: Iterable[Row], make: Callable[[Row], ImageFile]) -> list[ImageFile]:
    """The image of each row; a second row for one image raises `ImageError`."""
    lines: dict[Path, int] = {}
    files = []
    for row in rows:
        file = make(row)
        if file.path in lines:
            raise ImageError(row.source, f"image '{file.id}' is already listed in line {lines[file.path]}; keep one")
        lines[file.path] = row.line
        files.append(file)
    return files


def _make_row(path: Path, line: int, values: Sequence[str], header: Sequence[str]) -> Row:
    source = f"{path}, line {line}"
    if len(values) != len(header):
        raise ImageError(source, f"{len(values)} fields under {len(header)} columns; quote fields with a comma")
    return Row(source, line, {name: value.strip() for name, value in zip(header, values, strict=True)})


def normal_name(name: str) -> str:
    """A file's name in one spelling: `./a.png`, `x/../a.png` and `a.png` are one image."""
    return Path(os.path.normpath(name)).as_posix()


class LabelIndex:
    """The index of each label name; a repeated name raises `DataError`.

    Args:
        names: The label names in order.
        source: Where they come from, for messages.
        note: What the message about an unknown label ends in.
    """

    def __init__(self, names: Sequence[str], source: object, note: str = "") -> None:
        self._positions = {name: index for index, name in enumerate(names)}
        self._unknown, self._note = UnknownNames("label", names), note
        for index, name in enumerate(names):
            if self._positions[name] != index:
                raise DataError(f"{source}: the label '{name}' is listed twice; label names must be unique")

    def of(self, row: Row, names: Iterable[str]) -> tuple[int, ...]:
        """The sorted indices of the label names of a row, looked up exactly; unknown ones raise `ImageError`."""
        given = set(names)
        if unknown := sorted(given - self._positions.keys()):
            raise ImageError(row.source, f"{self._unknown.of(unknown)}{self._note}")
        return tuple(sorted(self._positions[name] for name in given))
