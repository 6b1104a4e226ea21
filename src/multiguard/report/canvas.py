"""What all figures share: one look on every machine, a heading, line styles, and three formats with stable bytes."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict

from multiguard.certify.arguments import Floats
from multiguard.io.files import write_atomically

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
# The first font draws everything but the characters it lacks; for these the others follow, where installed.
_FONTS = (
    "DejaVu Sans",
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP"),
    *("Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "IPAGothic"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Thai", "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Hebrew"),
    *("Noto Sans Arabic", "Noto Sans", "Arial Unicode MS", "Unifont", "Noto Emoji", "Symbola"),
)
_MISSING_GLYPH = r"Glyph \d+ .* missing from (?:current )?font|Matplotlib currently does not support"


@contextmanager
def fixed_style() -> Iterator[None]:
    """One look on every machine; matplotlib's settings are restored. Characters without a font are drawn as boxes."""
    import matplotlib

    style: dict[Any, Any] = {"font.family": list(_installed_fonts(_FONTS)), "font.size": 9, "text.color": INK}
    style |= dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), QUIET)
    style |= dict.fromkeys(("axes.spines.top", "axes.spines.right", "text.parse_math"), False)
    style |= {"svg.hashsalt": "multiguard"}
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_MISSING_GLYPH)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        yield


@cache
def _installed_fonts(names: tuple[str, ...]) -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return tuple(name for name in names if name in installed)


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
    for kind in formats:
        write_atomically(folder / f"{name}.{kind}", partial(_write, figure, kind))
    return [folder / f"{name}.{kind}" for kind in formats]


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


def _stroke(colours: tuple[str, str], dash: int, marker: int) -> Stroke:
    light, dark = colours
    word = _MARKER_NAMES[marker % len(_MARKER_NAMES)]
    return {"light": light, "dark": dark, "dash": _DASHES[dash % len(_DASHES)], "marker": word}


def draw_staircase(
    axes: "Axes", radius: Values, values: Values, stroke: Stroke, label: str, *, bold: bool = False, **options: Any
) -> None:
    """A line of what is proved: between two radii the value at the larger one, which holds at all smaller ones."""
    draw_line(axes, radius, values, stroke, label, bold=bold, drawstyle="steps-pre", **options)


def draw_line(
    axes: "Axes", x: Values, y: Values, stroke: Stroke, label: str, *, bold: bool = False, **options: Any
) -> None:
    """A line in this stroke, with about nine markers unless `markevery` says where they are."""
    style: dict[str, Any] = {"color": stroke["light"], "dashes": stroke["dash"] or (None, None)}
    style |= {"linewidth": 2.2 if bold else 1.4, "zorder": 3 if bold else 2}
    style |= {"marker": _MARKERS[stroke["marker"]], "markevery": max(1, len(x) // _MARKERS_PER_LINE)}
    style |= {"markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5}
    axes.plot(x, y, label=drawable(label), **{**style, **options})
