"""Figures of the results page as small SVG files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multiguard.certify.arguments import Floats
from multiguard.io.files import require_folder
from multiguard.report import figures
from multiguard.report.figures import distinct_strokes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = "images/results"  # in the folder of the page
_PATH, _DIGITS = re.compile(r' d="[^"]*"'), re.compile(r"(\.\d\d)\d+")
_HEIGHT = 2.75
_AXIS = "R (ℓ₂-norm of the perturbation)"


@dataclass(frozen=True, eq=False)
class Panel:
    """Lines against the radius.

    Attributes:
        title: Its title.
        unit: The unit of its axis.
        radius: (radii,) of the lines.
        lines: A name and the values of each; panels of one figure have the same names in the same order.
    """

    title: str
    unit: str
    radius: Floats
    lines: Sequence[tuple[str, Floats]]


def curves_figure(folder: Path, name: str, title: str, subtitle: str, panels: Sequence[Panel]) -> Path:
    """The panels side by side under one heading and one legend, as `name.svg`."""
    return svg_figure(lambda: _figure(title, subtitle, panels), folder, name)


def svg_figure(draw: "Callable[[], Figure]", folder: Path, name: str) -> Path:
    """A figure in the style of the report, as `name.svg`."""
    require_folder(folder)
    with figures.fixed_style():
        (path,) = figures.save(draw(), folder, name, ["svg"])
    text = _PATH.sub(lambda match: _DIGITS.sub(r"\1", match[0]), path.read_text(encoding="utf-8"))  # two decimals do
    path.write_text(text, encoding="utf-8")
    return path


def _figure(title: str, subtitle: str, panels: Sequence[Panel]) -> "Figure":
    names = [name for name, _ in panels[0].lines]
    columns = figures.legend_columns(names)
    rows, widths = -(-len(names) // columns), [1] * len(panels)
    figure, axes = figures.new_figure(title, subtitle, height=_HEIGHT, legend_rows=rows, widths=widths)
    for each, panel, letter in zip(axes, panels, "abcd", strict=False):
        _draw_panel(each, panel, f"({letter})  {panel.title}" if len(panels) > 1 else panel.title)
    figures.add_legend(figure, axes[0], height=_HEIGHT, ncols=columns)
    return figure


def _draw_panel(axes: "Axes", panel: Panel, title: str) -> None:
    for (name, values), stroke in zip(panel.lines, distinct_strokes(len(panel.lines)), strict=True):
        figures.draw_line(axes, panel.radius, values, stroke, name, **figures.PROVED)
    low = min(float(values.min()) for _, values in panel.lines)
    figures.style_axes(axes, title, x=_AXIS, y=panel.unit)
    axes.set_xlim(0, float(panel.radius[-1]))
    if low < 0:
        axes.set_ylim(bottom=1.15 * low)
        axes.axhline(0, color=figures.QUIET, linewidth=0.8)
