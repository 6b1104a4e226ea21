"""Figures in the house style: those of a report as SVG, and curves that the report has no figure for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from multiguard.certify.types import Floats

from multiguard.io.files import require_folder
from multiguard.report import Study, canvas, draw_figures, draw_tradeoff
from multiguard.report.strokes import MARKERS, Stroke, strokes_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PATH, _DIGITS = re.compile(r' d="[^"]*"'), re.compile(r"(\.\d\d)\d+")
_RADIUS = "R (ℓ₂-norm of the change)"


@dataclass(frozen=True, eq=False)
class Panel:
    """Lines against the radius.

    Attributes:
        title: What stands above it.
        unit: What stands at its axis.
        radius: (radii,) where the lines are asked.
        lines: A name and the values of each; panels of one figure have the same names in the same order.
    """

    title: str
    unit: str
    radius: Floats
    lines: Sequence[tuple[str, Floats]]


def study_figures(study: Study, folder: Path, prefix: str, keys: Sequence[str]) -> dict[str, Path]:
    """These figures of a report as `prefix-key.svg`; those whose data is not there are left out."""
    require_folder(folder)
    with TemporaryDirectory() as scratch:
        drawn = {path.stem: path for path in draw_figures(study, Path(scratch)) if path.suffix == ".svg"}
        found = {key: folder / f"{prefix}-{key}.svg" for key in keys if key in drawn}
        for key, path in found.items():
            _copy_smaller(drawn[key], path)
    return found


def curves_figure(folder: Path, name: str, title: str, subtitle: str, panels: Sequence[Panel]) -> Path:
    """The panels side by side under one heading and one legend, as `name.svg`."""
    require_folder(folder)
    with canvas.fixed_style(), TemporaryDirectory() as scratch:
        drawn = canvas.save(_draw(title, subtitle, panels), Path(scratch), name)
        chosen = next(path for path in drawn if path.suffix == ".svg")
        return _copy_smaller(chosen, folder / chosen.name)


def tradeoff_figure(rows: Sequence[Mapping[str, Any]], folder: Path, subtitle: str) -> Path:
    """The report's figure of certified recall against draws, as `tradeoff.svg`."""
    require_folder(folder)
    with TemporaryDirectory() as scratch:
        chosen = next(p for p in draw_tradeoff(rows, Path(scratch), subtitle=subtitle) if p.suffix == ".svg")
        return _copy_smaller(chosen, folder / chosen.name)


def _copy_smaller(drawn: Path, path: Path) -> Path:
    """Copy an SVG with the points of its paths to the hundredth: smaller, and no eye can tell."""
    text = _PATH.sub(lambda found: _DIGITS.sub(r"\1", found[0]), drawn.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    return path


def _draw(title: str, subtitle: str, panels: Sequence[Panel]) -> "Figure":
    names = [name for name, _ in panels[0].lines]
    columns = canvas.legend_columns(names)
    header = 0.46 + 0.16 * (subtitle.count("\n") + 1) + 0.2 * -(-len(names) // columns)
    figure, left_below = canvas.new_figure(2.75 + header, title, subtitle, header=header)
    figure.get_layout_engine().set(rect=(0, 0, 1, left_below), wspace=0.06)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for each, panel, letter in zip(axes, panels, "abcd", strict=False):
        _draw_panel(each, panel, f"({letter})  {panel.title}" if len(panels) > 1 else panel.title)
    canvas.place_legend(figure, axes[0], left_below, ncols=columns, handlelength=4.2)
    return figure


def _draw_panel(axes: "Axes", panel: Panel, title: str) -> None:
    for (name, values), stroke in zip(panel.lines, strokes_apart(len(panel.lines)), strict=True):
        _draw_line(axes, panel.radius, name, values, stroke)
    low = min(float(values.min()) for _, values in panel.lines)
    canvas.dress(axes, title, x=_RADIUS, y=panel.unit)
    axes.set_xlim(0, float(panel.radius[-1]))
    if low < 0:
        axes.set_ylim(bottom=1.15 * low)
        axes.axhline(0, color=canvas.QUIET, linewidth=0.8)


def _draw_line(axes: "Axes", radius: Floats, name: str, values: Floats, stroke: Stroke) -> None:
    axes.plot(
        radius,
        values,
        color=stroke.light,
        linewidth=1.6,
        dashes=stroke.dash or (None, None),
        marker=MARKERS[stroke.marker],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=max(1, len(radius) // canvas.MARKERS_ON_A_LINE),
        label=name,
    )
