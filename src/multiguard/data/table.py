"""CSV tables as people have them: UTF-8, with or without a byte-order mark, quoted, in any column order."""

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from multiguard.data.listed import Entry
from multiguard.data.sample import Problem
from multiguard.errors import DataError

Given = TypeVar("Given")
Made = TypeVar("Made")


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


def read_table(path: Path, faults: list[Problem] | None = None) -> Table:
    """The table at `path`; a missing file, a repeated column or text that is not UTF-8 raises `DataError`.

    A ragged row raises it too, or is left out and put on the list `faults` where one is given.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = tuple(name.strip() for name in next(reader, []))
            _refuse_repeated(path, header)
            lines = ((f"{path}, line {reader.line_num}", values) for values in reader if values)
            rows = tuple(each(lines, lambda line: _row(*line, header), faults))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give the CSV of labels") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not readable as a UTF-8 CSV ({error})") from error
    if not rows and not faults:
        raise DataError(f"{path}: no rows below the header; expected one row an image")
    return Table(path, header, rows)


def each(given: Iterable[Given], make: Callable[[Given], Made], faults: list[Problem] | None) -> list[Made]:
    """What `make` makes of each; one that it refuses raises its `DataError`, or goes on the list `faults`."""
    made = []
    for one in given:
        try:
            made.append(make(one))
        except DataError as error:
            if faults is None:
                raise
            faults.append(Problem(str(error).partition(": ")[0], str(error)))
    return made


class EntryMaker:
    """Rows to entries, each image once: a second row for one image raises `DataError` with both lines.

    Args:
        make: One row's entry.
    """

    def __init__(self, make: Callable[[Row], Entry]) -> None:
        self.make = make
        self.seen: dict[Path, str] = {}

    def __call__(self, row: Row) -> Entry:
        """The row's entry."""
        entry = self.make(row)
        if entry.path in self.seen:
            first = self.seen[entry.path].rpartition(", ")[2]
            raise DataError(f"{row.source}: the image '{entry.id}' stands already in {first}; list each once")
        self.seen[entry.path] = row.source
        return entry


def normal_name(name: str) -> str:
    """A file's name in one spelling: `./a.png`, `x/../a.png` and `a.png` are one image."""
    return Path(os.path.normpath(name)).as_posix()


def _refuse_repeated(path: Path, header: Sequence[str]) -> None:
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise DataError(f"{path}: the column '{repeated[0]}' stands twice in the header; column names must differ")


def _row(source: str, values: Sequence[str], header: Sequence[str]) -> Row:
    if len(values) != len(header):
        raise DataError(f"{source}: {len(values)} fields under {len(header)} columns; quote fields that hold a comma")
    return Row(source, {name: value.strip() for name, value in zip(header, values, strict=True)})
