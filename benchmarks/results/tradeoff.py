"""Certified recall against the number of draws, fixed and adaptive."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import require_folder
from multiguard.io.rounding import plain
from multiguard.report import canvas
from multiguard.report.canvas import DPI, FORMATS, Format, distinct_strokes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = ("draws", "forecast_margin", "images", "average_draws", "certified_recall")
_HEIGHT = 2.75


@dataclass(frozen=True)
class Point:
    """One plan of draws on one set of images."""

    line: str
    images: str
    draws: float
    recall: float


def draw_tradeoff(
    rows: Iterable[Mapping[str, Any]],
    folder: Path,
    *,
    subtitle: str = "",
    formats: Sequence[Format] = FORMATS,
    dpi: float = DPI,
) -> list[Path]:
    """The figure `tradeoff` in each format: a panel for each set of images, a line for each plan of draws.

    Args:
        rows: What `python -m benchmarks.adaptive` prints, as `csv.DictReader` gives it: `draws` ("fixed" or
            "adaptive"), `forecast_margin`, `images`, `average_draws`, and `certified_recall` in percent.
        folder: Where to write; created if missing.
        subtitle: The config: k, k', alpha, the radius.
        formats: The formats to write.
        dpi: The resolution of the PNG file.
    """
    points = [read_point(row) for row in rows]
    if not points:
        raise InvalidInputError("there are no rows to draw; give those that benchmarks.adaptive prints")
    require_folder(folder)
    with canvas.fixed_style():
        return canvas.save(tradeoff_figure(points, subtitle), folder, "tradeoff", formats, dpi)


def read_point(row: Mapping[str, Any]) -> Point:
    """A row as a point; raises `InvalidInputError` unless it has all columns."""
    try:
        draws, margin, images, average, recall = (row[name] for name in _COLUMNS)
        line = str(draws) if margin in ("", None) else f"{draws}, forecast margin {plain(float(margin))}"
        return Point(line, str(images), float(average), float(recall))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the row {dict(row)!r} must have {', '.join(_COLUMNS)}, the last two numbers, as benchmarks.adaptive "
            "prints them"
        ) from error


def tradeoff_figure(points: Sequence[Point], subtitle: str) -> "Figure":
    """The points of each set of images, on shared axes."""
    sets, lines = (list(dict.fromkeys(each)) for each in zip(*((p.images, p.line) for p in points), strict=True))
    title = "Certified recall against the number of draws"
    figure, panels = canvas.new_figure(title, subtitle, height=_HEIGHT, legend_rows=1, widths=[1] * len(sets))
    for axes, images in zip(panels, sets, strict=True):
        for line, stroke in zip(lines, distinct_strokes(len(lines)), strict=True):
            own = sorted((p.draws, p.recall) for p in points if (p.images, p.line) == (images, line))
            canvas.draw_line(axes, [x for x, _ in own], [y for _, y in own], stroke, line, markevery=1)
        _style(axes, f"{images} images", points)
    canvas.add_legend(figure, panels[0], height=_HEIGHT, ncols=canvas.legend_columns(lines))
    return figure


def _style(axes: "Axes", title: str, points: Sequence[Point]) -> None:
    """A logarithmic axis of draws, to spread the small numbers; recall need not start at zero here."""
    draws, recalls = [p.draws for p in points], [p.recall for p in points]
    canvas.style_axes(axes, title, x="mean draws per image", y="certified recall, %")
    margin = 0.05 * (max(recalls) - min(recalls)) or 1
    axes.set_ylim(min(recalls) - margin, max(recalls) + margin)
    axes.set_xscale("log")
    axes.set_xlim(min(draws) / 1.15, max(draws) * 1.15)
    ticks = [n for power in range(8) for n in (10**power, 2 * 10**power, 5 * 10**power)]
    shown = [n for n in ticks if min(draws) / 1.15 <= n <= max(draws) * 1.15]
    axes.set_xticks(shown, [plain(n) for n in shown])
    axes.set_xticks([], minor=True)
