"""Certified recall against the draws it takes, where n is fixed and where it is adaptive."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import require_folder
from multiguard.report import canvas
from multiguard.report.rounding import plain
from multiguard.report.strokes import MARKERS, Stroke, strokes_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = ("draws", "forecast_margin", "images", "average_draws", "certified_recall")
_TITLE = "Certified recall against the draws it takes"


@dataclass(frozen=True)
class _Point:
    """One way to draw, on one set of images."""

    line: str
    images: str
    draws: float
    recall: float


def draw_tradeoff(rows: Iterable[Mapping[str, Any]], folder: Path, *, subtitle: str = "") -> list[Path]:
    """The figure `tradeoff` as PNG, SVG and PDF: a panel for each set of images, a line for each way to draw.

    Args:
        rows: What `python -m benchmarks.adaptive` prints, as `csv.DictReader` gives it: `draws` ("fixed" or
            "adaptive"), `forecast_margin`, `images`, `average_draws`, and `certified_recall` in percent.
        folder: Where to write; made if it is not there.
        subtitle: What was asked: k, k', alpha, the radius.

    Returns:
        The three files.
    """
    points = [_point(row) for row in rows]
    if not points:
        raise InvalidInputError("there are no rows to draw; give those that benchmarks.adaptive prints")
    require_folder(folder)
    with canvas.fixed_style():
        return canvas.save(_draw(points, subtitle), folder, "tradeoff")


def _point(row: Mapping[str, Any]) -> _Point:
    try:
        draws, forecast_margin, images, average, recall = (row[name] for name in _COLUMNS)
        line = (
            str(draws) if forecast_margin in ("", None) else f"{draws}, forecast_margin {plain(float(forecast_margin))}"
        )
        return _Point(line, str(images), float(average), float(recall))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"a row must have {', '.join(_COLUMNS)}, the last two numbers, as benchmarks.adaptive prints them; "
            f"this one has not: {dict(row)!r}"
        ) from error


def _draw(points: Sequence[_Point], subtitle: str) -> "Figure":
    sets, lines = (list(dict.fromkeys(each)) for each in zip(*((p.images, p.line) for p in points), strict=True))
    header = 0.82 if subtitle else 0.6
    figure, left_below = canvas.new_figure(2.75 + header, _TITLE, subtitle, header=header)
    figure.get_layout_engine().set(rect=(0, 0, 1, left_below), wspace=0.06)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(1, len(sets), squeeze=False, sharex=True, sharey=True)[0]
    for axes, images in zip(panels, sets, strict=True):
        for line, stroke in zip(lines, strokes_apart(len(lines)), strict=True):
            _draw_line(axes, line, stroke, [p for p in points if (p.images, p.line) == (images, line)])
    for axes, images in zip(panels, sets, strict=True):
        _dress(axes, f"{images} images", [p.draws for p in points])
    canvas.place_legend(figure, panels[0], left_below, ncols=canvas.LEGEND_COLUMNS, handlelength=4.2)
    return figure


def _draw_line(axes: "Axes", name: str, stroke: Stroke, points: Sequence[_Point]) -> None:
    ordered = sorted(points, key=lambda point: point.draws)
    axes.plot(
        [point.draws for point in ordered],
        [point.recall for point in ordered],
        color=stroke.light,
        linewidth=1.8,
        dashes=stroke.dash or (None, None),
        marker=MARKERS[stroke.marker],
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=name,
    )


def _dress(axes: "Axes", title: str, draws: Sequence[float]) -> None:
    """A logarithmic axis of draws, which alone spreads the small numbers; recall need not start at zero here."""
    low, high = axes.get_ylim()
    canvas.dress(axes, title, x="draws an image, on average", y="certified recall, %")
    axes.set_ylim(low, high)
    axes.set_xscale("log")
    ticks = [n for power in range(8) for n in (10**power, 2 * 10**power, 5 * 10**power)]
    shown = [n for n in ticks if min(draws) / 1.3 <= n <= max(draws) * 1.3]
    axes.set_xticks(shown, [plain(n) for n in shown])
    axes.set_xticks([], minor=True)
