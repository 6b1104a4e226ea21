"""The figures: certified scores against the radius, and attacks.

One look on every machine, line styles that differ in dash and marker first, and three formats with stable bytes.
"""

import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.evaluate import AttackCurve, Attacks, Averaging, Certificates, Results, attack_curves
from multiguard.evaluate.attacks import BEST
from multiguard.io.files import require_folder, write_atomically
from multiguard.io.rounding import plain, plain_percent
from multiguard.report import words
from multiguard.report.study import Family, Line, Measure, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = Floats | Sequence[float]
Dash = tuple[int, ...]
Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
_DPI = 200
INK, QUIET, RULE = "#1a1a1a", "#5c5c5c", "#d9d9d9"
_WIDTH = 10.6
_TITLE_HEIGHT, _LINE_HEIGHT, _LEGEND_HEIGHT = 0.46, 0.16, 0.2  # of the heading, in inches
_MARGINS = (0.62, 0.15, 0.5, 0.27, 0.72)  # of the panels in inches: left, right, below, above and between
_MOST_LEGEND_COLUMNS = 6
_MARKERS_PER_LINE = 9
_METADATA: dict[Format, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_MISSING_GLYPH = r"Glyph \d+ .* missing from (?:current )?font|Matplotlib currently does not support"


_CURVES_HEIGHT, _ATTACK_HEIGHT = 2.75, 3.1
_MOST_STEPS = 2000
_SCORE_AXIS = {"recall": "certified recall", "precision": "certified precision", "f1": "certified F1"}
_UNKNOWN, _IMPOSSIBLE = "#e9e4d8", "#dce8f1"
_MARGIN, _POINTS, _CHARACTERS_PER_LINE = 1.07, 400, 180  # of the figure of an attack


def draw_figures(study: Study, folder: Path, *, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """A figure for each family of curves in each format; the same study gives the same bytes.

    Scores are means over images; what a figure leaves out is in its subtitle. Returns the files, figure by figure.

    Example:
        >>> study = Study(read_certificates(certificates))  # a folder written by `multiguard certify`
        >>> [path.name for path in draw_figures(study, out, formats=["svg"])]
        ['methods.svg', 'k.svg']
    """
    require_folder(folder)
    with fixed_style():
        figures = {family.key: family_figure(study, family) for family in study.families}
        return [path for name, figure in figures.items() for path in save(figure, folder, name, formats)]


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
    with fixed_style():
        return save(attack_figure(attacks), folder, "attack", formats)


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
    columns = legend_columns(line.name for line in family.lines)
    rows, widths, subtitle = -(-len(family.lines) // columns), [1] * len(family.measures), _subtitle(study, family)
    figure, panels = new_figure(family.title, subtitle, height=_CURVES_HEIGHT, legend_rows=rows, widths=widths)
    for axes, measure, letter in zip(panels, family.measures, "abcd", strict=False):
        top = family.top(measure)
        for line, stroke in zip(family.lines, family_strokes(family), strict=True):
            _draw_curve(axes, line, stroke, measure, clip=top is not None)
        title = f"({letter})  {measure.title}" if len(panels) > 1 else measure.title
        unit = "%" if measure.is_fraction else "labels per image"
        style_axes(axes, title, x=study.main.certificates.noise.axis_label, y=unit)
        axes.set_xlim(0, float(family.radius[-1]) or 1.0)
        axes.set_ylim(top=top)
    add_legend(figure, panels[0], height=_CURVES_HEIGHT, ncols=columns)
    return figure


def _draw_curve(axes: "Axes", line: Line, stroke: "Stroke", measure: Measure, *, clip: bool) -> None:
    curve = line.curves["mean"]
    radius, values = curve.scores.radius, measure.on_axis(measure.values(curve))
    draw_line(axes, radius, values, stroke, line.name, bold=line.is_base, clip_on=clip, **PROVED)
    if (band := getattr(curve.bands, measure.key, None)) is not None:
        low, high = (measure.on_axis(end) for end in band)
        axes.fill_between(radius, low, high, color=stroke["light"], alpha=0.1, linewidth=0, zorder=1, step="pre")


def _subtitle(study: Study, family: Family) -> str:
    """The parameters that the lines share, the images, the bands and the cut of the axis; then the caveats."""
    curve = family.base.curves["mean"]
    shared = [text for key, text in words.config_words(study.main).items() if key != family.key]
    shared += [] if family.key == "methods" else [f"method {study.method}"]
    left_out = f"; {text} left out" if (text := words.curve_left_out(study.main, curve)) else ""
    sentences = [", ".join(shared), f"Mean over {curve.scores.images} images{left_out}"]
    if curve.scores.without_labels and not all(measure.is_fraction for measure in family.measures):
        sentences.append(f"The mean of {family.measures[-1].word.partition(',')[0]} is over all images voted on")
    levels = [bands.level for line in family.lines if (bands := line.curves["mean"].bands) is not None]
    sentences += [f"Shaded: {plain_percent(level)} % confidence for images like these" for level in levels[:1]]
    tops = [top for measure in family.measures if (top := family.top(measure)) is not None]
    sentences += [f"The axis of labels ends at {plain(top)}" for top in tops[:1]]
    return f"{'. '.join(sentences)}.\n{family.note}"


def attack_figure(attacks: Attacks) -> "Figure":
    """A panel of averages for each goal, and one of every certified radius."""
    method = attacks.methods[0]
    fine = np.unique([*np.linspace(0, attacks.radii[-1], _POINTS), *attacks.radii])  # close enough for steps
    curves = attack_curves(attacks, fine)
    widths = [1.25] * len(curves) + [1]
    domain = "stay in [0, 1]" if attacks.plan.get("box") or attacks.noise.whole else "may leave [0, 1]"
    text = f"{attacks.noise.unit_words}. Perturbed images {domain}. {words.sentence(words.verdict(attacks))}"
    subtitle = "\n".join([f"{words.attack_words(attacks)}.", *textwrap.wrap(text, _CHARACTERS_PER_LINE)])
    title = "Certified robustness and attacks"
    figure, panels = new_figure(title, subtitle, height=_ATTACK_HEIGHT, legend_rows=1, widths=widths)
    for axes, curve, letter in zip(panels, curves, "abc", strict=False):
        _draw_averages(axes, attacks, curve, method)
        stay = ("True" if attacks.labelled else "Predicted") + " labels that stay"
        title = f"({letter})  {stay if curve.goal == 'in' else 'Other labels returned'}"
        style_axes(axes, title, x=attacks.noise.axis_label, y="%" if curve.goal == "in" else "labels per image")
        axes.set_xlim(0, float(curve.radius[-1]))
        axes.set_ylim(top=100 if curve.goal == "in" else None)
    _draw_radii(panels[-1], attacks, method, "abc"[len(curves)])
    add_legend(figure, panels[0], height=_ATTACK_HEIGHT, ncols=5, handlelength=3.6, columnspacing=1.6)
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
    draw_line(axes, curve.radius, certified, stroke, f"certified ({method})", bold=True, **style, **PROVED)
    for name, stroke in zip(reversed([*curve.reached]), others, strict=True):
        bold, reached = name == BEST, scale * curve.reached[name]
        style |= {"drawstyle": "steps-post", "zorder": 3 if bold else 4}
        draw_line(axes, curve.radius, reached, stroke, words.ATTACK_NAMES.get(name, name), bold=bold, **style)


def _draw_radii(axes: "Axes", attacks: Attacks, method: Method, letter: str) -> None:
    """Each certified radius against the smallest attack that succeeded."""
    points = _radius_points(attacks, method)
    top = attacks.radii[-1] * _MARGIN
    axes.fill_between([0, top], [0, top], color=_IMPOSSIBLE, linewidth=0, zorder=0)
    axes.plot([0, top], [0, top], color=QUIET, linewidth=0.9, zorder=1)
    fallen = [(certified, radius) for certified, radius in points if radius < math.inf]
    intact = [(certified, top) for certified, radius in points if radius == math.inf]
    style: dict[str, Any] = {"linewidths": 0, "zorder": 3, "clip_on": False}
    color = distinct_strokes(2)[1]["light"]
    axes.scatter([x for x, _ in fallen], [y for _, y in fallen], s=16, color=color, alpha=0.5, **style)
    axes.scatter([x for x, _ in intact], [y for _, y in intact], s=14, marker="^", color=QUIET, alpha=0.3, **style)
    style_axes(axes, f"({letter})  Each certified radius", x="certified radius", y="smallest successful attack")
    axes.set(xlim=(0, top), ylim=(0, top))
    # A sound certificate leaves this corner empty.
    text = f"proved impossible\n\n● {len(fallen)} attacked successfully\n▲ {len(intact)} not"
    axes.text(0.97 * top, 0.04 * top, text, ha="right", va="bottom", color=QUIET, fontsize=8, linespacing=1.3)


def _radius_points(attacks: Attacks, method: Method) -> list[tuple[float, float]]:
    """For each image and certified number of labels, its finite radius and that of the smallest attack below it."""
    points = []
    for image in attacks.images:
        for size, radius in enumerate(image.proved["in"][method]):
            if 0 <= radius < math.inf:
                below = [each.radius for each in image.outcomes if each.goal == "in" and each.size <= size]
                points.append((float(radius), min(below, default=math.inf)))
    return points


@contextmanager
def fixed_style() -> Iterator[None]:
    """One look on every machine; matplotlib's settings are restored. Characters without a font are drawn as boxes."""
    import matplotlib

    style: dict[Any, Any] = {"font.family": "DejaVu Sans", "font.size": 9, "text.color": INK}
    style |= dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), QUIET)
    style |= dict.fromkeys(("axes.spines.top", "axes.spines.right", "text.parse_math"), False)
    style |= {"svg.hashsalt": "multiguard"}
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_MISSING_GLYPH)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        yield


def new_figure(
    title: str, subtitle: str, *, height: float, legend_rows: int = 0, widths: Sequence[float] = (1,), fit: bool = False
) -> tuple["Figure", "Sequence[Axes]"]:
    """A heading and a row of panels, `height` inches high; `fit` makes room for long names next to the panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = len(subtitle.splitlines())
    total = height + _TITLE_HEIGHT + _LINE_HEIGHT * lines + _LEGEND_HEIGHT * legend_rows
    figure = Figure(figsize=(_WIDTH, total), facecolor="white", layout="constrained" if fit else None)
    FigureCanvasAgg(figure)
    top = 1 - 0.1 / total
    figure.text(0.012, top, drawable(title), fontsize=11.5, fontweight="bold", va="top")
    figure.text(0.012, top - 0.24 / total, drawable(subtitle), fontsize=7.8, color=QUIET, va="top", linespacing=1.45)
    grid: dict[str, Any] = {"width_ratios": widths}
    if (layout := figure.get_layout_engine()) is not None:
        layout.set(rect=(0.01, 0, 0.98, height / total))  # type: ignore[call-arg]
    else:
        left, right, below, above, gap = _MARGINS
        grid |= {"left": left / _WIDTH, "right": 1 - right / _WIDTH}
        grid |= {"bottom": below / total, "top": (height - above) / total}
        grid |= {"wspace": gap * len(widths) / (_WIDTH - left - right - gap * (len(widths) - 1))}
    return figure, figure.subplots(1, len(widths), squeeze=False, gridspec_kw=grid)[0]


def drawable(text: str) -> str:
    """The text without byte order marks, at which the PDF backend fails; they have no width anywhere else."""
    return text.replace("\ufeff", "")


def legend_columns(names: Iterable[str]) -> int:
    """How many legend entries with such names fit in one row."""
    return max(1, min(_MOST_LEGEND_COLUMNS, int(_WIDTH / (0.85 + 0.075 * max(map(len, names))))))


def add_legend(figure: "Figure", axes: "Axes", *, height: float, **options: Any) -> None:
    """The legend of these axes in the heading, just above panels of this height."""
    anchor = (0.006, (height - 0.02) / figure.get_figheight())
    style = {"loc": "lower left", "bbox_to_anchor": anchor, "frameon": False, "fontsize": 8.5, "handlelength": 4.2}
    figure.legend(*axes.get_legend_handles_labels(), **{**style, **options})


def style_axes(axes: "Axes", title: str, *, x: str, y: str) -> None:
    """Title, axis labels and grid of a panel whose values start at zero."""
    axes.set_title(title, loc="left", fontsize=9, y=1.0)  # a fixed y, else every draw measures all ticks
    axes.set(xlabel=x, ylabel=y, ylim=(0, None))
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)


def save(figure: "Figure", folder: Path, name: str, formats: Sequence[Format]) -> list[Path]:
    """Lay the figure out once, then draw it once for each format; the same figure gives the same bytes."""
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    files = {kind: folder / f"{name}.{kind}" for kind in formats}
    for kind, file in files.items():
        write_atomically(file, partial(_write, figure, kind))
    return [*files.values()]


def _write(figure: "Figure", kind: Format, file: IO[bytes]) -> None:
    """Print through the format's own canvas: `savefig` would draw everything twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.set_dpi(_DPI)
    canvases: dict[Format, Any] = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG, "pdf": FigureCanvasPdf}
    getattr(canvases[kind](figure), f"print_{kind}")(file, metadata=_METADATA[kind])


class Stroke(TypedDict):
    """One line style; lines differ in dash and marker first, in colour second."""

    light: str  # colour on white
    dark: str  # colour on a dark background
    dash: Dash  # lengths of ink and gap in points; empty for a solid line
    marker: str  # a word that figures and the page both know


_MARKER_NAMES = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "star", "pentagon")
_MARKERS = dict(zip(_MARKER_NAMES, "osD^Xv*p", strict=True))
_DASHES: Sequence[Dash] = ((), (7, 3), (2, 2), (7, 2, 2, 2), (12, 3), (4, 2, 1, 2, 1, 2), (1, 3), (12, 3, 3, 3))
# Light and dark; distinct under the common kinds of colour blindness, with a contrast of 3 to 1 or more.
_DISTINCT = (
    *(("#0a6aa6", "#62b5ea"), ("#c2500a", "#f0935a"), ("#00795a", "#45c39c"), ("#96457f", "#dd9bc9")),
    *(("#86690a", "#dcb950"), ("#4a4a4a", "#c4c4c4"), ("#4c5bb5", "#9aa7f0"), ("#a03048", "#f08a9c")),
)
# From small to large values, in even steps of lightness.
_RAMP = (
    *(("#a08a00", "#fde725"), ("#6f9420", "#b5de2b"), ("#2f9a55", "#6ece58"), ("#1b8a83", "#35b7a0")),
    *(("#2a728a", "#4aa3c0"), ("#365a8a", "#6f94d0"), ("#443a80", "#9484dc"), ("#440a54", "#b57fd0")),
)


def distinct_strokes(count: int) -> list[Stroke]:
    """Strokes for lines without an order; beyond eight, colours and dashes meet in new pairs."""
    return [_stroke(_DISTINCT[i % len(_DISTINCT)], i + i // len(_DISTINCT), i) for i in range(count)]


def ordered_strokes(count: int, base: int) -> list[Stroke]:
    """Strokes for values from small to large; the one at index `base` is solid, the others are dashed."""
    steps = [round(i * (len(_RAMP) - 1) / max(count - 1, 1)) for i in range(count)]
    return [_stroke(_RAMP[step], 0 if i == base else i + (i < base), i) for i, step in enumerate(steps)]


def family_strokes(family: Family) -> list[Stroke]:
    """The stroke of each line of a family."""
    count = len(family.lines)
    return ordered_strokes(count, family.lines.index(family.base)) if family.ordered else distinct_strokes(count)


def _stroke(colours: tuple[str, str], dash: int, marker: int) -> Stroke:
    light, dark = colours
    word = _MARKER_NAMES[marker % len(_MARKER_NAMES)]
    return {"light": light, "dark": dark, "dash": _DASHES[dash % len(_DASHES)], "marker": word}


# What is proved: between two radii the value at the larger one, which holds at all smaller ones.
PROVED: dict[str, Any] = {"drawstyle": "steps-pre"}


def draw_line(
    axes: "Axes", x: Values, y: Values, stroke: Stroke, label: str, *, bold: bool = False, **options: Any
) -> None:
    """A line in this stroke, with about nine markers unless `markevery` says where they are."""
    style: dict[str, Any] = {"color": stroke["light"], "dashes": stroke["dash"] or (None, None)}
    style |= {"linewidth": 2.2 if bold else 1.4, "zorder": 3 if bold else 2}
    style |= {"marker": _MARKERS[stroke["marker"]], "markevery": max(1, len(x) // _MARKERS_PER_LINE)}
    style |= {"markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5}
    axes.plot(x, y, label=drawable(label), **{**style, **options})
