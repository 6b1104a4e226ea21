"""Small Markdown tables of curves at round radii; certified scores are rounded down."""

from collections.abc import Iterable, Sequence

import numpy as np

from multiguard.certify.arguments import Floats
from multiguard.evaluate import Scores
from multiguard.io.rounding import percent_value, plain
from multiguard.report.study import Family

RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
RADIUS_HEADS = [f"R = {plain(RADII[0])}", *map(plain, RADII[1:])]
_MOST_LINES = 5
WORDS = {"precision": "precision", "recall": "recall", "f1": "F1"}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """A pipe table whose first columns are words, aligned left, and whose other columns are numbers."""
    lines = [heads, [*["---"] * words, *["--:"] * (len(heads) - words)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table_rows(text: str) -> list[list[str]]:
    """The heads and the rows of the table in a text, as `markdown` took them; none without a table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[:1] + lines[2:]]


def scores_table(what: str, lines: Sequence[tuple[str, Scores]], measures: Sequence[str] = ("recall",)) -> str:
    """Certified scores in percent at round radii, a row for each line and measure.

    Args:
        what: What the lines differ in.
        lines: The name and the scores of each.
        measures: Which of precision, recall and f1; their name has a column where there are several.
    """
    several = len(measures) > 1
    heads = [what, *(["score"] if several else []), *RADIUS_HEADS]
    rows = [
        [name, *([WORDS[measure]] if several else []), *cells(scores, measure)]
        for name, scores in lines
        for measure in measures
    ]
    return markdown(heads, rows, words=1 + several)


def cells(scores: Scores, measure: str) -> list[str]:
    """One score in percent at the round radii that its curve reaches."""
    within = [radius for radius in RADII if radius <= scores.radius[-1] + 1e-9]
    values = [percent_value(float(getattr(scores, measure)[radius_index(scores.radius, one)])) for one in within]
    return [*values, *[""] * (len(RADII) - len(within))]


def family_table(family: Family, measures: Sequence[str] = ("recall",)) -> str:
    """The lines of a family, as means over images; of many lines in several scores five, evenly spread."""
    lines = [(line.value, line.curves["mean"].scores) for line in family.lines]
    if len(measures) > 1 and len(lines) > _MOST_LINES:
        lines = [lines[i] for i in np.linspace(0, len(lines) - 1, _MOST_LINES).round().astype(int)]
    return scores_table(family.symbol, lines, measures)


def radius_index(grid: Floats, radius: float) -> int:
    """The index of this radius in the grid."""
    index = int(np.argmin(np.abs(grid - radius)))
    if not np.isclose(grid[index], radius):
        raise ValueError(f"the curves have no point at R = {radius}; certify with a grid that has it")
    return index
