"""The paper's figures: certified precision, recall and F1 against the radius, three panels in a row."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from multiguard.evaluate import Bands, Scores
from multiguard.files import require_folder, write_atomically
from multiguard.report.families import Family, Line, families
from multiguard.report.labels import shown_labels, shown_radii
from multiguard.report.rounding import plain
from multiguard.report.strokes import MARKERS, Stroke
from multiguard.report.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Score = Literal["precision", "recall", "f1"]
_PANELS: tuple[tuple[Score, str], ...] = (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_INK, _QUIET, _RULE = "#1a1a1a", "#5c5c5c", "#d9d9d9"
_MARKERS_ON_A_LINE = 9
_WIDTH = 10.6
_LEGEND_COLUMNS = 6


def draw_figures(study: Study, folder: Path) -> list[Path]:
    """Every figure whose data is there, each as PNG, SVG and PDF; the same bytes for the same study.

    The averages are per-picture means, and what a figure does not cover stands in its subtitle. `runs` holds the runs
    beside the main one that are neither another sigma nor another training.

    Args:
        study: What to draw.
        folder: Where to write; made if it is not there.

    Returns:
        The files, figure by figure.
    """
    require_folder(folder)
    written: list[Path] = []
    with _fixed_style():
        for family in families(study):
            written += _save(_draw_family(study, family), folder, family.key)
        written += _save(_draw_labels(study), folder, "labels")
    return written


@contextmanager
def _fixed_style() -> Iterator[None]:
    """One look on every machine, whatever its matplotlib settings; put back afterwards."""
    import matplotlib

    own: dict[Any, Any] = {
        "svg.hashsalt": "multiguard",
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _QUIET,
        "axes.labelcolor": _QUIET,
        "xtick.color": _QUIET,
        "ytick.color": _QUIET,
        "text.color": _INK,
        "text.parse_math": False,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(own)
        yield


def _save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write the figure in every format, laid out once, so that all of them agree."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return [_save_one(figure, folder / f"{name}.{kind}", kind) for kind in _METADATA]


def _save_one(figure: "Figure", path: Path, kind: str) -> Path:
    def write(file: IO[bytes]) -> None:
        figure.savefig(file, format=kind, dpi=200, metadata=_METADATA[kind])

    write_atomically(path, write)
    return path


def _new_figure(height: float, title: str, subtitle: str, *, header: float) -> tuple["Figure", float]:
    """A figure with its heading, and the share of its height that is left below it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    top = 1 - 0.1 / height
    figure.text(0.012, top, title, fontsize=11.5, fontweight="bold", va="top")
    figure.text(0.012, top - 0.24 / height, subtitle, fontsize=7.8, color=_QUIET, va="top", linespacing=1.45)
    return figure, 1 - header / height


def _draw_family(study: Study, family: Family) -> "Figure":
    rows = -(-len(family.lines) // _LEGEND_COLUMNS)
    header = 0.78 + 0.2 * rows
    figure, left_below = _new_figure(2.75 + header, family.title, _subtitle(study, family), header=header)
    figure.get_layout_engine().set(rect=(0, 0, 1, left_below), wspace=0.06)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(1, 3)
    farthest = float(family.lines[0].curves["mean"].scores.radius[-1]) or 1.0
    for axes, (score, word), letter in zip(panels, _PANELS, "abc", strict=True):
        for line, stroke in zip(family.lines, family.strokes, strict=True):
            _draw_line(axes, line, stroke, score)
        _dress(axes, f"({letter})  Certified top-k {word}@R", farthest)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="lower left",
        bbox_to_anchor=(0.006, left_below - 0.02 / figure.get_figheight()),
        ncols=_LEGEND_COLUMNS,
        frameon=False,
        handlelength=4.2,
        fontsize=8.5,
    )
    return figure


def _subtitle(study: Study, family: Family) -> str:
    scores = family.lines[0].curves["mean"].scores
    left_out = f"; {scores.without_labels} without labels left out" if scores.without_labels else ""
    setting = study.setting
    fixed = {"k_prime": f"k′ = {setting.k_prime}", "k": f"k = {setting.k}", "n": f"n = {setting.draws}"}
    fixed |= {"alpha": f"α = {plain(setting.alpha)}", "sigma": f"σ = {plain(study.main.certificates.sigma)}"}
    words = [text for key, text in fixed.items() if key != family.key]
    method = "" if family.key == "methods" else f", method {study.method}"
    first = f"{', '.join(words)}{method}. Mean over {scores.images} pictures{left_out}.{_band_words(family)}"
    return "\n".join([first, family.note])


def _band_words(family: Family) -> str:
    bands = next((band for line in family.lines if (band := line.curves["mean"].bands) is not None), None)
    return "" if bands is None else f" Bands: {plain(100 * bands.level)} % bootstrap over the pictures."


def _draw_line(axes: "Axes", line: Line, stroke: Stroke, score: Score) -> None:
    curve = line.curves["mean"]
    radius, values = curve.scores.radius, _values(curve.scores, score)
    axes.plot(
        radius,
        100 * values,
        color=stroke.light,
        linewidth=2.2 if line.is_base else 1.4,
        dashes=stroke.dash or (None, None),
        marker=MARKERS[stroke.marker],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=max(1, len(radius) // _MARKERS_ON_A_LINE),
        label=line.name,
        zorder=3 if line.is_base else 2,
        clip_on=False,
    )
    if curve.bands is not None:
        low, high = _band(curve.bands, score)
        axes.fill_between(radius, 100 * low, 100 * high, color=stroke.light, alpha=0.1, linewidth=0, zorder=1)


def _values(scores: Scores, score: Score) -> Any:
    return getattr(scores, score)


def _band(bands: Bands, score: Score) -> Any:
    return getattr(bands, score)


def _dress(axes: "Axes", title: str, farthest: float) -> None:
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel("R (ℓ₂-norm of the change)")
    axes.set_ylabel("%")
    axes.set_xlim(0, farthest)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=_RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)


# One bar inside the other, the largest radius the thinnest and darkest, so that greys tell them apart too.
_BAR_GREYS = ("#d5dfe8", "#93b5cf", "#3f82b0", "#0c3b5e")
_BAR_HEIGHTS = (0.82, 0.62, 0.42, 0.22)


def _draw_labels(study: Study) -> "Figure":
    labels, radii = shown_labels(study), shown_radii(study)
    subtitle = (
        f"Of the pictures that have a label, how often it alone is certified at R (labels with the most pictures: "
        f"{len(labels)} of {len(study.main.certificates.label_names)}).\nEach label's claim is made alone at α = "
        f"{plain(study.setting.alpha)}; the number of pictures stands behind the name."
    )
    header = 0.92
    height = header + 0.75 + 0.21 * len(labels)
    figure, left_below = _new_figure(height, "How often each label is certified", subtitle, header=header)
    figure.get_layout_engine().set(rect=(0.01, 0, 0.98, left_below))  # type: ignore[union-attr, call-arg]
    axes = figure.subplots()
    places = list(range(len(labels)))
    for (index, radius), grey, thick in zip(radii, _BAR_GREYS, _BAR_HEIGHTS, strict=False):
        shares = [100 * float(label.certified[index]) for label in labels]
        axes.barh(places, shares, height=thick, color=grey, label=f"R = {plain(radius)}", zorder=2)
    axes.set_yticks(places, [f"{label.label}  ({label.images})" for label in labels])
    axes.set(xlim=(0, 100), ylim=(len(labels) - 0.4, -0.6), xlabel="certified, % of the label's pictures")
    axes.grid(axis="x", color=_RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelcolor=_INK)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="lower left",
        bbox_to_anchor=(0.006, left_below - 0.02 / height),
        ncols=4,
        frameon=False,
        fontsize=8.5,
    )
    return figure
