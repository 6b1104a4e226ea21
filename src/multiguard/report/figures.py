"""The paper's figures: certified scores against the radius, a panel each; labels; and draws where they differ."""

from pathlib import Path
from typing import TYPE_CHECKING

from multiguard.io.files import require_folder
from multiguard.report import canvas
from multiguard.report.draws import Stop, stops
from multiguard.report.families import families
from multiguard.report.family import Family, Line
from multiguard.report.labels import shown_labels, shown_radii
from multiguard.report.measure import Measure
from multiguard.report.rounding import plain, plain_percent
from multiguard.report.strokes import MARKERS, Stroke
from multiguard.report.study import Study
from multiguard.report.words import failed_words, left_out, mean_draws, setting_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RADIUS = "R (ℓ₂-norm of the change)"
_LINE = 0.16  # the height of a line of a subtitle


def draw_figures(study: Study, folder: Path) -> list[Path]:
    """Every figure whose data is there, each as PNG, SVG and PDF; the same bytes for the same study.

    The averages are per-image means, and what a figure does not cover stands in its subtitle. `rules` holds the runs
    of the other rule, `runs` those that are neither that nor another sigma nor another training; `draws` is there for
    an adaptive run.

    Args:
        study: What to draw.
        folder: Where to write; made if it is not there.

    Returns:
        The files, figure by figure.
    """
    require_folder(folder)
    written: list[Path] = []
    with canvas.fixed_style():
        for family in families(study):
            written += canvas.save(_draw_family(study, family), folder, family.key)
        written += canvas.save(_draw_labels(study), folder, "labels")
        if stopped := stops(study.main):
            written += canvas.save(_draw_draws(study, stopped), folder, "draws")
    return written


def _draw_family(study: Study, family: Family) -> "Figure":
    columns = canvas.legend_columns(line.name for line in family.lines)
    rows = -(-len(family.lines) // columns)
    subtitle = _subtitle(study, family)
    header = 0.46 + _LINE * (subtitle.count("\n") + 1) + 0.2 * rows
    figure, left_below = canvas.new_figure(2.75 + header, family.title, subtitle, header=header)
    figure.get_layout_engine().set(rect=(0, 0, 1, left_below), wspace=0.06)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(1, len(family.measures), squeeze=False)[0]
    for axes, measure, letter in zip(panels, family.measures, "abcd", strict=False):
        for line, stroke in zip(family.lines, family.strokes, strict=True):
            _draw_line(axes, line, stroke, measure, clipped=family.top(measure) is not None)
        title = f"({letter})  {measure.title}" if len(panels) > 1 else measure.title
        canvas.dress(axes, title, x=_RADIUS, y=measure.unit)
        axes.set_xlim(0, float(family.radius[-1]) or 1.0)
        axes.set_ylim(top=family.top(measure))
    canvas.place_legend(figure, panels[0], left_below, ncols=columns, handlelength=4.2)
    return figure


def _subtitle(study: Study, family: Family) -> str:
    curve = family.base.curves["mean"]
    named = {family.key} | ({"k_prime", "k", "threshold"} if family.key == "rules" else set())
    words = [text for key, text in setting_words(study.main).items() if key not in named]
    method = "" if family.key == "methods" else f", method {study.method}"
    without = left_out(study, curve)
    counted = f"Mean over {curve.scores.images} images{f'; {without} left out' if without else ''}."
    first = f"{', '.join(words)}{method}. {counted}"
    return "\n".join([first + _band_words(family) + _axis_words(family), family.note])


def _band_words(family: Family) -> str:
    bands = next((band for line in family.lines if (band := line.curves["mean"].bands) is not None), None)
    return "" if bands is None else f" Bands: {plain_percent(bands.level)} % bootstrap over the images."


def _axis_words(family: Family) -> str:
    top = next((top for measure in family.measures if (top := family.top(measure)) is not None), None)
    return "" if top is None else f" The axis of labels ends at {plain(top)}."


def _draw_line(axes: "Axes", line: Line, stroke: Stroke, measure: Measure, *, clipped: bool) -> None:
    curve = line.curves["mean"]
    radius = curve.scores.radius
    axes.plot(
        radius,
        measure.drawn(measure.values(curve)),
        color=stroke.light,
        linewidth=2.2 if line.is_base else 1.4,
        dashes=stroke.dash or (None, None),
        marker=MARKERS[stroke.marker],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=max(1, len(radius) // canvas.MARKERS_ON_A_LINE),
        label=line.name,
        zorder=3 if line.is_base else 2,
        clip_on=clipped,
    )
    if (band := measure.band(curve)) is not None:
        low, high = (measure.drawn(end) for end in band)
        axes.fill_between(radius, low, high, color=stroke.light, alpha=0.1, linewidth=0, zorder=1)


# One bar inside the other, the largest radius the thinnest and darkest, so that greys tell them apart too.
_BAR_GREYS = ("#d5dfe8", "#93b5cf", "#3f82b0", "#0c3b5e")
_BAR_HEIGHTS = (0.82, 0.62, 0.42, 0.22)


def _draw_labels(study: Study) -> "Figure":
    labels, radii = shown_labels(study), shown_radii(study)
    header = 0.92 + (_LINE if failed_words(study.main) else 0)
    height = header + 0.75 + 0.21 * len(labels)
    subtitle = _label_words(study, len(labels))
    figure, left_below = canvas.new_figure(height, "How often each label is certified", subtitle, header=header)
    figure.get_layout_engine().set(rect=(0.01, 0, 0.98, left_below))  # type: ignore[union-attr, call-arg]
    axes = figure.subplots()
    places = list(range(len(labels)))
    for (index, radius), grey, thick in zip(radii, _BAR_GREYS, _BAR_HEIGHTS, strict=False):
        shares = [100 * float(label.certified[index]) for label in labels]
        axes.barh(places, shares, height=thick, color=grey, label=f"R = {plain(radius)}", zorder=2)
    axes.set_yticks(places, [f"{label.label}  ({label.images})" for label in labels])
    axes.set(xlim=(0, 100), ylim=(len(labels) - 0.4, -0.6), xlabel="certified, % of the label's images")
    axes.grid(axis="x", color=canvas.RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelcolor=canvas.INK)
    canvas.place_legend(figure, axes, left_below, ncols=4)
    return figure


def _label_words(study: Study, labels: int) -> str:
    having = "that have a label" if study.labelled else "for which pilot draws chose a label"
    alpha = plain(study.config.alpha)
    claim = (
        f"Each label's claim is made alone at α = {alpha}"
        if study.labelled
        else f"All claims about an image's labels hold at once at α = {alpha}; how often it is right is not known"
    )
    return (
        f"Of the images {having}, how often it alone is certified at R (labels with the most images: "
        f"{labels} of {len(study.main.certificates.label_names)}).\n{claim}; the number of images stands behind the "
        f"name.\n{failed_words(study.main)}"
    ).rstrip()


def _draw_draws(study: Study, stopped: list[Stop]) -> "Figure":
    words = (
        f"{mean_draws(study.main)} draws an image on average, at most {study.config.draws}. An image stops at the "
        "first look after which more draws would hardly help.\n"
        f"α is split over the looks: all of them together keep the promise.\n{failed_words(study.main)}"
    ).rstrip()
    header = 0.72 + (_LINE if failed_words(study.main) else 0)
    figure, left_below = canvas.new_figure(2.6 + header, "Draws that the images took", words, header=header)
    figure.get_layout_engine().set(rect=(0.01, 0, 0.98, left_below))  # type: ignore[union-attr, call-arg]
    axes = figure.subplots()
    bars = axes.bar(range(len(stopped)), [stop.images for stop in stopped], width=0.72, color=_BAR_GREYS[2])
    axes.bar_label(bars, fontsize=8, padding=2, color=canvas.INK)
    axes.set_xticks(range(len(stopped)), [str(stop.draws) for stop in stopped])
    canvas.dress(axes, "", x="draws at the look where an image stopped", y="images")
    axes.margins(y=0.14)
    return figure
