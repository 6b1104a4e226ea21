"""One table, three ways to write it: CSV without loss, Markdown and LaTeX rounded down."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING

from multiguard.io.names import as_cell
from multiguard.report import escape
from multiguard.report.rounding import percent_value, round_up

ROUNDED_DOWN = "Percentages are rounded down to one decimal, so that none claims more than was proved."
ROUNDED_UP = "The most labels that come in are rounded up to two decimals, for the same reason."


@dataclass(frozen=True)
class AtMost:
    """A cell that is a ceiling on a count, and so is rounded up."""

    value: float


@dataclass(frozen=True)
class ShareAtMost:
    """A cell that is a ceiling on a share, shown in percent and so rounded up."""

    value: float


Cell = str | int | float | AtMost | ShareAtMost


@dataclass(frozen=True)
class Column:
    """A column: its name in the CSV, its heading for people, and whether they are shown it at all."""

    name: str
    heading: str
    printed: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of texts and whole numbers, as they are, of shares (floats from 0 to 1), shown in percent, and of ceilings.

    Attributes:
        name: The table's name in file names and LaTeX labels.
        caption: What it shows.
        notes: Sentences below it.
        columns: Its columns.
        rows: A cell for each column.
    """

    name: str
    caption: str
    notes: Sequence[str]
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def to_csv(self) -> str:
        """Every share in full, as a fraction; a text that a spreadsheet would run has an apostrophe before it."""
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return written.getvalue()

    def to_markdown(self) -> str:
        """A pipe table in percent, with its caption before it and its notes after it."""
        lines = [_pipes([escape.markdown(column.heading) for column in self.columns if column.printed])]
        lines.append(_pipes([":--" if isinstance(cell, str) else "--:" for cell in self._first_row()]))
        lines += [_pipes([_shown(cell, escape.markdown) for cell in self._printed(row)]) for row in self.rows]
        notes = " ".join(escape.markdown(note) for note in self._all_notes())
        return f"**{escape.markdown(self.caption)}**\n\n" + "\n".join(lines) + f"\n\n{notes}\n"

    def to_latex(self) -> str:
        """A booktabs table in percent; needs the package booktabs and nothing else."""
        shape = "".join("l" if isinstance(cell, str) else "r" for cell in self._first_row())
        heading = " & ".join(escape.latex(column.heading) for column in self.columns if column.printed)
        body = [" & ".join(_shown(cell, escape.latex) for cell in self._printed(row)) + r" \\" for row in self.rows]
        notes = " ".join(escape.latex(note) for note in self._all_notes())
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{escape.latex(self.caption)}}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{{shape}}}",
                r"\toprule",
                rf"{heading} \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\par\smallskip",
                rf"{{\footnotesize {notes}}}",
                r"\end{table}",
                "",
            ]
        )

    def _first_row(self) -> Sequence[Cell]:
        return self._printed(self.rows[0] if self.rows else [""] * len(self.columns))

    def _printed(self, row: Sequence[Cell]) -> list[Cell]:
        return [cell for column, cell in zip(self.columns, row, strict=True) if column.printed]

    def _all_notes(self) -> list[str]:
        ceilings = any(isinstance(cell, AtMost) for row in self.rows for cell in row)
        return [ROUNDED_DOWN, *([ROUNDED_UP] if ceilings else []), *(note for note in self.notes if note)]


def _csv_cell(cell: Cell) -> str:
    number = cell.value if isinstance(cell, AtMost | ShareAtMost) else cell
    return repr(number) if isinstance(number, float) else as_cell(str(number))


def _shown(cell: Cell, escaped: Callable[[str], str]) -> str:
    if isinstance(cell, AtMost):
        return round_up(cell.value, 2)
    if isinstance(cell, ShareAtMost):
        return percent_value(cell.value, ROUND_CEILING)
    return percent_value(cell) if isinstance(cell, float) else escaped(str(cell))


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
