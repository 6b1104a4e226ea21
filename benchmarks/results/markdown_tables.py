"""Small Markdown tables of curves at round radii, and long ones as CSV files; certified scores are rounded down."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from multiguard.certify.arguments import Floats
from multiguard.evaluate import Scores
from multiguard.io.rounding import percent_value, plain

RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
RADIUS_HEADS = [f"R = {plain(RADII[0])}", *map(plain, RADII[1:])]
TABLES = "results"  # in the folder of the page
WORDS = {"precision": "precision", "recall": "recall", "f1": "F1"}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """A pipe table whose first columns are words, aligned left, and whose other columns are numbers."""
    lines = [heads, [*["---"] * words, *["--:"] * (len(heads) - words)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def csv_link(docs: Path, name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a long table as `name.csv` beside the page; the link to it."""
    path = docs / TABLES / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])
    return f"[{name}.csv]({TABLES}/{path.name})"


def csv_rows(docs: Path, name: str) -> list[list[str]]:
    """The rows of such a table without its heads; none if there is no such file."""
    path = docs / TABLES / f"{name}.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def cells(scores: Scores, measure: str) -> list[str]:
    """One score in percent at the round radii that its curve reaches."""
    within = [radius for radius in RADII if radius <= scores.radius[-1] + 1e-9]
    values = [percent_value(float(getattr(scores, measure)[radius_index(scores.radius, one)])) for one in within]
    return [*values, *[""] * (len(RADII) - len(within))]


def radius_index(grid: Floats, radius: float) -> int:
    """The index of this radius in the grid."""
    index = int(np.argmin(np.abs(grid - radius)))
    if not np.isclose(grid[index], radius):
        raise ValueError(f"the curves have no point at R = {radius}; certify with a grid that has it")
    return index
