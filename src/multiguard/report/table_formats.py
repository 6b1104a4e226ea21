"""One table in three formats: CSV without loss, Markdown and LaTeX rounded so that no number claims too much."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from operator import methodcaller
from pathlib import Path

from multiguard.io.files import write_atomically
from multiguard.io.names import as_cell
from multiguard.io.rounding import percent_value, plain, round_up

_ROUNDED_DOWN = "Percentages are rounded down to one decimal, so none claims more than was proved."
_ROUNDED_UP = "Ceilings on the number of labels are rounded up to two decimals, for the same reason."


@dataclass(frozen=True)
class AtMost:
    """A ceiling on a number of labels, or on a fraction, which is shown in percent; rounded up."""

    value: float
    is_fraction: bool = False


Cell = str | int | float | AtMost


@dataclass(frozen=True)
class Column:
    """A column: its name in the CSV, its heading for people, and whether they see it at all."""

    name: str
    heading: str
    printed: bool = True


def radius_columns(radii: Sequence[float]) -> list[Column]:
    """One column per radius."""
    return [Column(f"R={plain(radius)}", f"R = {plain(radius)}") for radius in radii]


@dataclass(frozen=True)
class Table:
    """Rows of texts and integers, of fractions (floats from 0 to 1, shown in percent), and of ceilings."""

    name: str  # in file names and LaTeX labels
    caption: str
    notes: Sequence[str]  # sentences below it
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]  # one cell per column

    def write(self, folder: Path) -> list[Path]:
        """Write it in all three formats."""
        texts = {"csv": self.to_csv(), "md": self.to_markdown(), "tex": self.to_latex()}
        for kind, text in texts.items():
            write_atomically(folder / f"{self.name}.{kind}", methodcaller("write", text.encode()))
        return [folder / f"{self.name}.{kind}" for kind in texts]

    def to_csv(self) -> str:
        """Every fraction in full; a text that a spreadsheet would run gets an apostrophe in front."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return file.getvalue()

    def to_markdown(self) -> str:
        """A pipe table in percent between its caption and its notes."""
        heading = [escape_markdown(column.heading) for column in self.columns if column.printed]
        alignment = [":--" if isinstance(cell, str) else "--:" for cell in self._first_row()]
        rows = [heading, alignment, *(self._printed(row, escape_markdown) for row in self.rows)]
        lines = [f"| {' | '.join(cells)} |" for cells in rows]
        notes = " ".join(escape_markdown(note) for note in self._all_notes())
        return "\n".join([f"**{escape_markdown(self.caption)}**", "", *lines, "", notes, ""])

    def to_latex(self) -> str:
        """A booktabs table in percent; it needs the package booktabs and nothing else."""
        alignment = "".join("l" if isinstance(cell, str) else "r" for cell in self._first_row())
        heading = " & ".join(escape_latex(column.heading) for column in self.columns if column.printed)
        body = [" & ".join(self._printed(row, escape_latex)) + r" \\" for row in self.rows]
        notes = " ".join(escape_latex(note) for note in self._all_notes())
        lines = [
            *(r"\begin{table}", r"\centering"),
            *(rf"\caption{{{escape_latex(self.caption)}}}", rf"\label{{tab:{self.name}}}"),
            *(rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", rf"{heading} \\", r"\midrule", *body, r"\bottomrule"),
            *(r"\end{tabular}", r"\par\smallskip", rf"{{\footnotesize {notes}}}", r"\end{table}"),
        ]
        return "\n".join(lines) + "\n"

    def _first_row(self) -> list[Cell]:
        row = self.rows[0] if self.rows else [""] * len(self.columns)
        return [cell for column, cell in zip(self.columns, row, strict=True) if column.printed]

    def _printed(self, row: Sequence[Cell], escape: Callable[[str], str]) -> list[str]:
        return [_cell_text(cell, escape) for column, cell in zip(self.columns, row, strict=True) if column.printed]

    def _all_notes(self) -> list[str]:
        ceilings = any(isinstance(cell, AtMost) and not cell.is_fraction for row in self.rows for cell in row)
        return [_ROUNDED_DOWN, *([_ROUNDED_UP] if ceilings else []), *filter(None, self.notes)]


def _csv_cell(cell: Cell) -> str:
    number = cell.value if isinstance(cell, AtMost) else cell
    return repr(number) if isinstance(number, float) else as_cell(str(number))


def _cell_text(cell: Cell, escape: Callable[[str], str]) -> str:
    if isinstance(cell, AtMost):
        return percent_value(cell.value, ROUND_CEILING) if cell.is_fraction else round_up(cell.value, 2)
    return percent_value(cell) if isinstance(cell, float) else escape(str(cell))


_LATEX_TEXT = {"\\": "backslash", "^": "asciicircum", "~": "asciitilde", "`": "asciigrave"}
_LATEX_TEXT |= {"<": "less", ">": "greater", "|": "bar", '"': "quotedbl"}
_LATEX_MATH = {"′": "'", "σ": r"\sigma", "α": r"\alpha", "−": "-", "ℓ₂": r"\ell_2"}
_LATEX = {
    "[": "{[}",
    "]": "{]}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: rf"\text{name}{{}}" for character, name in _LATEX_TEXT.items()},
    **{character: rf"\ensuremath{{{name}}}" for character, name in _LATEX_MATH.items()},
}
_LATEX_SPECIAL = re.compile("|".join(re.escape(text) for text in sorted(_LATEX, key=len, reverse=True)))
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|~$]|:(?=//)|(?<=www)\.)")
# Control characters, and marks that turn the direction of text and so hide what is next to them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")


def escape_latex(text: str) -> str:
    """The text on one line, with no character that LaTeX reads as a command or as an option of the one before."""
    escaped = _LATEX_SPECIAL.sub(lambda match: _LATEX[match[0]], _CONTROL.sub(" ", text))
    return re.sub(r"^(\s*)\*", r"\1{*}", escaped)


def escape_markdown(text: str) -> str:
    """The text on one line, for a table cell, with no character that is markup or HTML."""
    entities = _CONTROL.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", entities)
