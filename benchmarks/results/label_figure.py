"""How much of each label is certified."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.results.drawing import IMAGES, svg_figure
from benchmarks.results.sources import ALPHA, MAIN, Source
from multiguard.certify.arguments import Floats
from multiguard.io.rounding import percent_value, plain
from multiguard.report import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AT = (0.0, 0.5, 1.0)
_HEIGHT = 3.6


def labels_block(source: Source, docs: Path) -> dict[str, str]:
    """A figure with every label that some image has, and means over labels beside means over images."""
    names = source.label_names
    proved: dict[int, list[float]] = {}
    for labels, radii in zip(source.labels, source.label_radii(MAIN), strict=True):
        for label, radius in zip(labels, radii.tolist(), strict=True):
            proved.setdefault(label, []).append(radius)
    found = {label: np.mean(np.array(radii)[:, None] >= _AT, axis=0) for label, radii in proved.items()}
    order = sorted(found, key=lambda label: (-found[label][1], -found[label][0], names[label]))
    lines = [(f"{names[label]} ({len(proved[label])})", found[label]) for label in order]
    config = f"k′ = {MAIN.k_prime}, k = {MAIN.k}, σ = {plain(source.sigma)}, n = {source.draws:,}, α = {plain(ALPHA)}"
    subtitle = (
        f"{len(source)} images, {config}, method joint. Each label alone: in which part of the images that have it the "
        "label provably stays; in brackets their number."
    )
    path = svg_figure(lambda: _figure(lines, subtitle), docs / IMAGES, "labels")
    each, images = np.mean(list(found.values()), axis=0), source.scores(MAIN, "joint", radius=_AT).recall
    without = [i for i, true in enumerate(source.labels) if "person" not in {names[label] for label in true}]
    rest = [np.mean(source.label_radii(MAIN)[i][:, None] >= _AT, axis=0) for i in without]
    words = (
        f"Certified at R = {', '.join(map(plain, _AT))}: as a mean over the {len(found)} labels {_list(each)} %, over "
        f"the {len(source)} images {_list(images)} %, over the {len(without)} images without a person "
        f"{_list(np.mean(rest, axis=0))} % (each label alone). Of the {len(found)} labels "
        f"{sum(value[1] == 0 for value in found.values())} are never certified at R = 0.5."
    )
    image = f"![Certified recall of each label at R = 0, 0.5 and 1]({IMAGES}/{path.name})"
    return {"labels": f"{image}\n\n{words}"}


def _list(values: Floats) -> str:
    return ", ".join(percent_value(float(value)) for value in values)


def _figure(lines: list[tuple[str, Floats]], subtitle: str) -> "Figure":
    figure, (axes,) = canvas.new_figure(
        "Certified recall of each label", subtitle, height=_HEIGHT, legend_rows=1, fit=True
    )
    places = np.arange(len(lines))
    table = 100 * np.array([values for _, values in lines])
    axes.vlines(places, table[:, 2], table[:, 0], color=canvas.RULE, linewidth=1.6)
    marks = zip(range(len(_AT)), ("s", "o", "^"), canvas.distinct_strokes(3), strict=True)
    for column, marker, stroke in marks:
        axes.plot(
            places,
            table[:, column],
            marker,
            color=stroke["light"],
            markersize=3.6,
            label=f"R = {plain(_AT[column])}",
            linestyle="",
        )
    canvas.style_axes(axes, "", x="", y="certified, % of its images")
    axes.set_xticks(places, [name for name, _ in lines], rotation=90, fontsize=6)
    axes.set_xlim(-0.8, len(lines) - 0.2)
    axes.set_ylim(-2, 102)
    canvas.add_legend(figure, axes, height=_HEIGHT, ncols=3)
    return figure
