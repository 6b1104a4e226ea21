"""CSV tables as people have them: UTF-8, with or without a byte-order mark, quoted, in any column order."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multiguard.errors import DataError


@dataclass(frozen=True)
class Row:
    """One line of a table: where it stands in the file, for messages, and its fields by column name."""

    source: str
    fields: dict[str, str]


@dataclass(frozen=True)
class Table:
    """A CSV file read whole: its column names in order and its rows."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def require(self, columns: Sequence[str]) -> None:
        """Pass only if every one of these columns is there; else raise `DataError` with the first missing."""
        for column in columns:
            if column not in self.columns:
                raise DataError(f"{self.path}: no column '{column}'; its header is {','.join(self.columns)}")


def read_table(path: Path) -> Table:
    """The table at `path`; a missing file, a ragged row or text that is not UTF-8 raises `DataError`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = tuple(name.strip() for name in next(reader, []))
            rows = tuple(_row(path, reader.line_num, header, values) for values in reader if values)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give the CSV of labels") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not readable as a UTF-8 CSV ({error})") from error
    if not rows:
        raise DataError(f"{path}: no rows below the header; expected one row a picture")
    return Table(path, header, rows)


def _row(path: Path, line: int, header: Sequence[str], values: Sequence[str]) -> Row:
    source = f"{path}, line {line}"
    if len(values) != len(header):
        raise DataError(f"{source}: {len(values)} fields under {len(header)} columns; quote fields that hold a comma")
    return Row(source, {name: value.strip() for name, value in zip(header, values, strict=True)})
