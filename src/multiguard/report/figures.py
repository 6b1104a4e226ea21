"""The figures: certified scores against the radius, how often labels are certified, and attacks."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.evaluate import AttackCurve, Attacks, Averaging, Certificates, Results, attack_curves
from multiguard.evaluate.attacks import BEST
from multiguard.io.files import require_folder
from multiguard.io.rounding import plain, plain_percent
from multiguard.report import canvas
from multiguard.report.canvas import FORMATS, Format, Stroke, distinct_strokes, drawable
from multiguard.report.study import Family, Line, Measure, Study, round_radii
from multiguard.report.words import (
    ATTACK_NAMES,
    attack_words,
    config_words,
    curve_left_out,
    failure_words,
    label_images,
    sentence,
    verdict,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVES_HEIGHT, _ATTACK_HEIGHT = 2.75, 3.1
_MOST_LABELS = 40
_LABEL_HALVES = (0, 1, 2, 4)
# One bar inside the other: the largest radius is the thinnest and darkest, so that a grey print tells them apart.
_BAR_GREYS = ("#d5dfe8", "#93b5cf", "#3f82b0", "#0c3b5e")
_BAR_HEIGHTS = (0.82, 0.62, 0.42, 0.22)
_MOST_STEPS = 2000
_SCORE_AXIS = {"recall": "certified recall", "precision": "certified precision", "f1": "certified F1"}
_UNKNOWN, _IMPOSSIBLE = "#e9e4d8", "#dce8f1"
_MARGIN, _POINTS, _CHARACTERS_PER_LINE = 1.07, 400, 180  # of the figure of an attack


def draw_figures(study: Study, folder: Path, *, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """A figure for each family of curves, and `labels`, in each format; the same study gives the same bytes.

    Scores are means over images; what a figure leaves out is in its subtitle. Returns the files, figure by figure.

    Example:
        >>> study = Study(read_certificates(certificates))  # a folder written by `multiguard certify`
        >>> [path.name for path in draw_figures(study, out, formats=["svg"])]
        ['methods.svg', 'k.svg', 'labels.svg']
    """
    require_folder(folder)
    with canvas.fixed_style():
        figures: dict[str, Figure] = {family.key: family_figure(study, family) for family in study.families}
        figures["labels"] = label_figure(study)
        return [path for name, figure in figures.items() for path in canvas.save(figure, folder, name, formats)]


def draw_attack(attacks: Attacks, folder: Path, *, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """The figure `attack` in each format; the same attacks give the same bytes.

    Averages over images first: what is certified, what each attack reached, and shaded between the certificate and
    the best attack what is unknown. Then every certified radius against the smallest radius at which an attack
    succeeded against it: a sound certificate has no point below the diagonal.

    Example:
        >>> attacks = read_attacks(attack)  # a folder written by `multiguard attack`
        >>> [path.name for path in draw_attack(attacks, out, formats=["svg"])]
        ['attack.svg']
    """
    require_folder(folder)
    with canvas.fixed_style():
        return canvas.save(attack_figure(attacks), folder, "attack", formats)


def draw_scores(
    results: Results,
    axes: "Axes | None",
    score: str,
    methods: Sequence[Method],
    averaging: Averaging,
    style: dict[str, Any],
) -> "Axes":
    """Draw one line per method; arguments as in `Results.plot`."""
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots()
    last = float(results.curves[0].scores.radius[-1])
    for method in methods:
        radius = step_radii(results.certificates, method, last)
        values = getattr(results.curve(radius, method=method, averaging=averaging).scores, score)
        # A score holds up to and including its radius: beyond the radius before it, the value of the next one counts.
        axes.step(radius, values, where="pre", **{"label": method, **style})
    axes.set(xlabel=results.certificates.noise.axis_label, ylabel=_SCORE_AXIS[score], ylim=(0, 1.02), xlim=(0, None))
    axes.legend()
    return axes


def step_radii(certificates: Certificates, method: Method, last: float) -> Floats:
    """0, every radius at which a score of this method falls, and `last` if that is more; a grid if they are too many.

    Between two radii of a grid the value of the larger one is drawn, so that no step is drawn too high.
    """
    false = [] if certificates.false_radii is None else [certificates.false_radii[method].values]
    falls: Floats = np.unique(np.concatenate([[0.0, last], certificates.radii[method].values, *false]))
    falls = falls[np.isfinite(falls) & (falls >= 0)]
    if len(falls) <= _MOST_STEPS:
        return falls
    grid = np.linspace(0.0, falls[-1], _MOST_STEPS)
    return np.unique(np.floor(grid)) if certificates.noise.whole else grid


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
        canvas.style_axes(
            axes,
            title,
            x=study.main.certificates.noise.axis_label,
            y="%" if measure.is_fraction else "labels per image",
        )
        axes.set_xlim(0, float(family.radius[-1]) or 1.0)
        axes.set_ylim(top=top)
    canvas.add_legend(figure, panels[0], height=_CURVES_HEIGHT, ncols=columns)
    return figure


def _draw_curve(axes: "Axes", line: Line, stroke: Stroke, measure: Measure, *, clip: bool) -> None:
    curve = line.curves["mean"]
    radius, values = curve.scores.radius, measure.on_axis(measure.values(curve))
    canvas.draw_staircase(axes, radius, values, stroke, line.name, bold=line.is_base, clip_on=clip)
    if (band := getattr(curve.bands, measure.key, None)) is not None:
        low, high = (measure.on_axis(end) for end in band)
        axes.fill_between(radius, low, high, color=stroke["light"], alpha=0.1, linewidth=0, zorder=1, step="pre")


def _subtitle(study: Study, family: Family) -> str:
    """The parameters that the lines share, the images, the bands and the cut of the axis; then the caveats."""
    curve = family.base.curves["mean"]
    words = [text for key, text in config_words(study.main).items() if key != family.key]
    words += [] if family.key == "methods" else [f"method {study.method}"]
    left_out = f"; {text} left out" if (text := curve_left_out(study.main, curve)) else ""
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
    images, total = label_images(study.labelled), len(study.main.certificates.label_names)
    at = "" if study.exact else f" at α = {plain(study.config.alpha)}"
    claim = f"The claim about each label holds alone{at}"
    if not study.labelled:
        claim = f"All claims about an image's labels hold at once{at}; whether a label is right is unknown"
    elif study.exact:
        claim = "All claims hold at once: nothing is random"
    return (
        f"How often a label alone is certified at R, among the images {images} ({shown} of {total} labels, those with "
        f"the most images).\n{claim}. The number of images is in parentheses.\n{failure_words(study.main)}"
    ).rstrip()


def attack_figure(attacks: Attacks) -> "Figure":
    """A panel of averages for each goal, and one of every certified radius."""
    method = attacks.methods[0]
    fine = np.unique([*np.linspace(0, attacks.radii[-1], _POINTS), *attacks.radii])  # close enough for steps
    curves = attack_curves(attacks, fine)
    widths = [1.25] * len(curves) + [1]
    domain = "stay in [0, 1]" if attacks.plan.get("box") or attacks.noise.whole else "may leave [0, 1]"
    words = f"{attacks.noise.unit_words}. Perturbed images {domain}. {sentence(verdict(attacks))}"
    lines = textwrap.wrap(words, _CHARACTERS_PER_LINE)
    title, subtitle = "Certified robustness and attacks", "\n".join([f"{attack_words(attacks)}.", *lines])
    figure, panels = canvas.new_figure(title, subtitle, height=_ATTACK_HEIGHT, legend_rows=1, widths=widths)
    for axes, curve, letter in zip(panels, curves, "abc", strict=False):
        _draw_averages(axes, attacks, curve, method)
        stay = ("True" if attacks.labelled else "Predicted") + " labels that stay"
        title = f"({letter})  {stay if curve.goal == 'in' else 'Other labels returned'}"
        canvas.style_axes(axes, title, x=attacks.noise.axis_label, y="%" if curve.goal == "in" else "labels per image")
        axes.set_xlim(0, float(curve.radius[-1]))
        axes.set_ylim(top=100 if curve.goal == "in" else None)
    _draw_radii(panels[-1], attacks, method, "abc"[len(curves)])
    canvas.add_legend(figure, panels[0], height=_ATTACK_HEIGHT, ncols=5, handlelength=3.6, columnspacing=1.6)
    return figure


def _draw_averages(axes: "Axes", attacks: Attacks, curve: AttackCurve, method: Method) -> None:
    """Steps: what an attack reached holds from its radius on, a certificate up to its own."""
    scale = 100 if curve.goal == "in" else 1
    certified = scale * curve.certified[method]
    best = scale * curve.reached[BEST if BEST in curve.reached else attacks.names[0]]
    between, floor, top = (np.repeat(ends, 2) for ends in (curve.radius, certified[1:], best[:-1]))
    axes.fill_between(between[1:-1], floor, top, color=_UNKNOWN, linewidth=0, label="unknown")
    marks = np.searchsorted(curve.radius, attacks.radii).tolist()
    style: dict[str, Any] = {"markevery": marks, "markersize": 5, "clip_on": False}
    stroke, *others = distinct_strokes(1 + len(curve.reached))
    canvas.draw_staircase(axes, curve.radius, certified, stroke, f"certified ({method})", bold=True, **style)
    for name, stroke in zip(reversed([*curve.reached]), others, strict=True):
        bold, reached = name == BEST, scale * curve.reached[name]
        style |= {"drawstyle": "steps-post", "zorder": 3 if bold else 4}
        canvas.draw_line(axes, curve.radius, reached, stroke, ATTACK_NAMES.get(name, name), bold=bold, **style)


def _draw_radii(axes: "Axes", attacks: Attacks, method: Method, letter: str) -> None:
    """Each certified radius against the smallest attack that succeeded."""
    points = _radius_points(attacks, method)
    top = attacks.radii[-1] * _MARGIN
    axes.fill_between([0, top], [0, top], color=_IMPOSSIBLE, linewidth=0, zorder=0)
    axes.plot([0, top], [0, top], color=canvas.QUIET, linewidth=0.9, zorder=1)
    fallen = [(certified, radius) for certified, radius in points if radius < math.inf]
    intact = [(certified, top) for certified, radius in points if radius == math.inf]
    style: dict[str, Any] = {"linewidths": 0, "zorder": 3, "clip_on": False}
    color = distinct_strokes(2)[1]["light"]
    axes.scatter([x for x, _ in fallen], [y for _, y in fallen], s=16, color=color, alpha=0.5, **style)
    axes.scatter(
        [x for x, _ in intact], [y for _, y in intact], s=14, marker="^", color=canvas.QUIET, alpha=0.3, **style
    )
    words = f"({letter})  Each certified radius"
    canvas.style_axes(axes, words, x="certified radius", y="smallest successful attack")
    axes.set(xlim=(0, top), ylim=(0, top))
    # A sound certificate leaves this corner empty.
    words = f"proved impossible\n\n● {len(fallen)} attacked successfully\n▲ {len(intact)} not"
    axes.text(0.97 * top, 0.04 * top, words, ha="right", va="bottom", color=canvas.QUIET, fontsize=8, linespacing=1.3)


def _radius_points(attacks: Attacks, method: Method) -> list[tuple[float, float]]:
    """For each image and certified number of labels, its finite radius and that of the smallest attack below it."""
    points = []
    for image in attacks.images:
        for size, radius in enumerate(image.proved["in"][method]):
            if 0 <= radius < math.inf:
                below = [each.radius for each in image.outcomes if each.goal == "in" and each.size <= size]
                points.append((float(radius), min(below, default=math.inf)))
    return points
