"""The paper's figures: certified scores against the radius, how often labels are certified, and adaptive draws."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multiguard.io.files import require_folder
from multiguard.io.rounding import plain, plain_percent
from multiguard.report import canvas
from multiguard.report.canvas import DPI, FORMATS, Format, Stroke, drawable
from multiguard.report.families import Family, Line, Measure
from multiguard.report.study import Study, round_radii
from multiguard.report.words import config_words, curve_left_out, failure_words, mean_draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVES_HEIGHT, _DRAWS_HEIGHT = 2.75, 2.6
_MOST_LABELS = 40
_LABEL_HALVES = (0, 1, 2, 4)
# One bar inside the other: the largest radius is the thinnest and darkest, so that a grey print tells them apart.
_BAR_GREYS = ("#d5dfe8", "#93b5cf", "#3f82b0", "#0c3b5e")
_BAR_HEIGHTS = (0.82, 0.62, 0.42, 0.22)


def draw_figures(study: Study, folder: Path, *, formats: Sequence[Format] = FORMATS, dpi: float = DPI) -> list[Path]:
    """Every figure that has data, in each format; the same study gives the same bytes.

    Scores are means over images; what a figure leaves out is in its subtitle. There is one figure per family of
    curves, `labels`, and for an adaptive run `draws`.

    Args:
        study: What to draw.
        folder: Where to write; created if missing.
        formats: The formats to write.
        dpi: The resolution of PNG files.

    Returns:
        The files, figure by figure.

    Example:
        >>> study = Study(read_certificates(certificates))  # a folder written by `multiguard certify`
        >>> [path.name for path in draw_figures(study, out, formats=["svg"])]
        ['methods.svg', 'k.svg', 'labels.svg']
    """
    require_folder(folder)
    paths: list[Path] = []
    with canvas.fixed_style():
        for family in study.families:
            paths += canvas.save(family_figure(study, family), folder, family.key, formats, dpi)
        paths += canvas.save(label_figure(study), folder, "labels", formats, dpi)
        if study.stops:
            paths += canvas.save(draws_figure(study), folder, "draws", formats, dpi)
    return paths


def family_figure(study: Study, family: Family) -> "Figure":
    """A panel for each score of the family, and a line in it for each curve."""
    columns = canvas.legend_columns(line.name for line in family.lines)
    rows, widths, subtitle = -(-len(family.lines) // columns), [1] * len(family.measures), _subtitle(study, family)
    figure, panels = canvas.new_figure(family.title, subtitle, height=_CURVES_HEIGHT, legend_rows=rows, widths=widths)
    for axes, measure, letter in zip(panels, family.measures, "abcd", strict=False):
        top = family.top(measure)
        for line, stroke in zip(family.lines, family.strokes, strict=True):
            _draw_curve(axes, line, stroke, measure, clip=top is not None)
        title = f"({letter})  {measure.title}" if len(panels) > 1 else measure.title
        canvas.style_axes(axes, title, x=study.main.certificates.noise.axis_label, y=measure.unit)
        axes.set_xlim(0, float(family.radius[-1]) or 1.0)
        axes.set_ylim(top=top)
    canvas.add_legend(figure, panels[0], height=_CURVES_HEIGHT, ncols=columns)
    return figure


def _draw_curve(axes: "Axes", line: Line, stroke: Stroke, measure: Measure, *, clip: bool) -> None:
    curve = line.curves["mean"]
    radius, values = curve.scores.radius, measure.on_axis(measure.values(curve))
    canvas.draw_staircase(axes, radius, values, stroke, line.name, bold=line.is_base, clip_on=clip)
    if (band := measure.band(curve)) is not None:
        low, high = (measure.on_axis(end) for end in band)
        axes.fill_between(radius, low, high, color=stroke["light"], alpha=0.1, linewidth=0, zorder=1, step="pre")


def _subtitle(study: Study, family: Family) -> str:
    """The parameters that the lines share, the images, the bands and the cut of the axis; then the caveats."""
    curve = family.base.curves["mean"]
    varied = {family.key} | ({"k_prime", "k", "threshold"} if family.key == "rules" else set())
    words = [text for key, text in config_words(study.main).items() if key not in varied]
    words += [] if family.key == "methods" else [f"method {study.method}"]
    left_out = f"; {text} left out" if (text := curve_left_out(study, curve)) else ""
    sentences = [", ".join(words), f"Mean over {curve.scores.images} images{left_out}"]
    if curve.scores.without_labels and not all(measure.is_fraction for measure in family.measures):
        sentences.append(f"The mean of {family.measures[-1].word.partition(',')[0]} is over all images voted on")
    levels = [bands.level for line in family.lines if (bands := line.curves["mean"].bands) is not None]
    sentences += [f"Shaded: {plain_percent(level)} % confidence for images like these" for level in levels[:1]]
    tops = [top for measure in family.measures if (top := family.top(measure)) is not None]
    sentences += [f"The axis of labels ends at {plain(top)}" for top in tops[:1]]
    return f"{'. '.join(sentences)}.\n{family.note}"


def label_figure(study: Study) -> "Figure":
    """A bar for each of the labels with the most images: how often it is certified at four radii."""
    most = study.label_scores[:_MOST_LABELS]
    labels = sorted(most, key=lambda label: (-float(np.sum(label.certified)), label.label))
    height, subtitle = 0.75 + 0.21 * len(labels), _label_subtitle(study, len(labels))
    title, rows = "How often each label is certified", list(range(len(labels)))
    figure, (axes,) = canvas.new_figure(title, subtitle, height=height, legend_rows=1, fit=True)
    radii = round_radii(study.grid, study.main.certificates.noise, _LABEL_HALVES)
    for (index, radius), grey, thickness in zip(radii, _BAR_GREYS, _BAR_HEIGHTS, strict=False):
        percents = [100 * float(label.certified[index]) for label in labels]
        axes.barh(rows, percents, height=thickness, color=grey, label=f"R = {plain(radius)}", zorder=2)
    axes.set_yticks(rows, [drawable(f"{label.label}  ({label.images})") for label in labels])
    axes.set(xlim=(0, 100), ylim=(len(labels) - 0.4, -0.6), xlabel="certified, % of the label's images")
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=canvas.RULE, linewidth=0.6)
    axes.tick_params(axis="y", length=0, labelcolor=canvas.INK)
    canvas.add_legend(figure, axes, height=height, ncols=4, handlelength=2)
    return figure


def _label_subtitle(study: Study, shown: int) -> str:
    images = "that have it" if study.labelled else "for which pilot draws chose it"
    alpha, total = plain(study.config.alpha), len(study.main.certificates.label_names)
    at = "" if study.exact else f" at α = {alpha}"
    claim = (
        "All claims hold at once: nothing is random" if study.exact else f"The claim about each label holds alone{at}"
    )
    if not study.labelled:
        claim = f"All claims about an image's labels hold at once{at}; whether a label is right is unknown"
    return (
        f"How often a label alone is certified at R, among the images {images} ({shown} of {total} labels, those with "
        f"the most images).\n{claim}. The number of images is in parentheses.\n{failure_words(study.main)}"
    ).rstrip()


def draws_figure(study: Study) -> "Figure":
    """How many images of an adaptive run stopped after so many draws."""
    subtitle = (
        f"{mean_draws(study.main)} draws per image on average, at most {study.config.draws}. An image stops "
        "once its claims are proved or more draws would hardly help.\n"
        f"The guarantee of the method betting holds wherever an image stops.\n{failure_words(study.main)}"
    ).rstrip()
    figure, (axes,) = canvas.new_figure("Draws per image", subtitle, height=_DRAWS_HEIGHT)
    places = range(len(study.stops))
    bars = axes.bar(places, list(study.stops.values()), width=0.72, color=_BAR_GREYS[2])
    axes.bar_label(bars, fontsize=8, padding=2, color=canvas.INK)
    axes.set_xticks(places, [str(draws) for draws in study.stops])
    canvas.style_axes(axes, "", x="draws after which an image stopped", y="images")
    axes.margins(y=0.14)
    return figure
