"""The page of a comparison: one HTML file that opens offline."""

from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from multiguard.evaluate import typical_radius
from multiguard.report.attackers import DIAL_WORDS, unit_words
from multiguard.report.leaderboard import Contender, Leaderboard
from multiguard.report.page_data import family_data
from multiguard.report.single_file import render_page, write_text

_SCRIPTS = ("elements.js", "charts.js", "families.js", "address.js", "comparison.js")


def write_comparison(board: Leaderboard, path: Path) -> None:
    """Write one HTML file that opens offline, fetches nothing, and shows no score above what was proved.

    Args:
        board: What the page is about.
        path: The file, such as comparison.html; its folder is created if missing.

    Example:
        >>> from multiguard.report import compare_runs
        >>> run = read_certificates(certificates)  # a folder written by `multiguard certify`
        >>> write_comparison(compare_runs({"one": run, "other": run}), out / "comparison.html")
    """
    grid, noise = board.family.radius, board.baseline.certificates.noise
    first = typical_radius(noise)
    start = int(np.argmin(np.abs(grid - (first if first in board.radius else board.radius[len(board.radius) // 2]))))
    words = [each.words for each in board.contenders]
    text = render_page(
        "comparison.html",
        _SCRIPTS,
        _data(board, start),
        board=board,
        title=board.title,
        level=_level(board),
        measures=board.measures,
        noise=noise,
        dial_words=DIAL_WORDS[noise.attacker],
        unit_words=unit_words(noise),
        grid=grid,
        start=start,
        last=len(grid) - 1,
        radius=repr(float(grid[start])).removesuffix(".0"),
        ticks=[(int(np.searchsorted(grid, radius)), 2 * n) for n, radius in enumerate(board.radius)],
        columns=list(words[0]),
        rows=[list(each.values()) for each in words],
        table=list(_table(board)),
    )
    write_text(path, text)


def _level(board: Leaderboard) -> float:
    bands = board.baseline.curves["mean"].bands
    assert bands is not None
    return bands.level


def _data(board: Leaderboard, start: int) -> dict[str, Any]:
    family = family_data(board.family)
    for line, each in zip(family["lines"], board.contenders, strict=True):
        line["differences"] = _differences(board, each)
    axis = board.baseline.certificates.noise.axis_label
    return {"grid": family["grid"], "start": start, "methods": [], "axis": axis, "families": [family]}


def _differences(board: Leaderboard, each: Contender) -> dict[str, Any] | None:
    if each.differences is None:
        return None
    keys = [measure.key for measure in board.measures]
    return {"mean": {key: [ends.tolist() for ends in getattr(each.differences, key)] for key in keys}}


def _table(board: Leaderboard) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """For each contender and score its name, the score, and at each radius the value and the difference."""
    positions = np.searchsorted(board.family.radius, board.radius).tolist()
    for each in board.contenders:
        for measure in board.measures:
            values = measure.values(each.curves["mean"])
            cells = [
                (measure.text(float(values[i])), _interval_words(board.difference(each, measure, i))) for i in positions
            ]
            yield each.name, measure.word, cells


def _interval_words(found: tuple[float, float, float] | None) -> str:
    return "{} ({} to {})".format(*difference_words(found)) if found else ""


def difference_words(found: tuple[float, float, float] | None) -> tuple[str, str, str]:
    """A difference in points, and its interval, whose ends are rounded outwards; empty for the baseline itself.

    >>> difference_words((0.0123, -0.0041, 0.0288))
    ('+1.2', '-0.5', '+2.9')
    """
    if found is None:
        return "", "", ""
    value, low, high = (
        str((100 * Decimal(repr(number + 0.0))).quantize(Decimal("0.1"), rounding))
        for number, rounding in zip(found, (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING), strict=True)
    )
    value, low, high = (text if text.startswith("-") else f"+{text}" for text in (value, low, high))
    return value, low, high
