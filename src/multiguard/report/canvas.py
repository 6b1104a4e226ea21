"""What all figures have in common: one look on every machine, a heading, and three formats, the same every time."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from multiguard.io.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
INK, QUIET, RULE = "#1a1a1a", "#5c5c5c", "#d9d9d9"
MARKERS_ON_A_LINE = 9
LEGEND_COLUMNS = 6
_WIDTH = 10.6
_FONT = "DejaVu Sans"
# Asked in this order for what the first font lacks, where they are installed.
_MORE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP"),
    *("Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "IPAGothic"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Thai", "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Hebrew"),
    *("Noto Sans Arabic", "Noto Sans", "Arial Unicode MS", "Unifont", "Noto Emoji", "Symbola"),
)
_LACKS_A_GLYPH = r"Glyph \d+ .* missing from (?:current )?font|Matplotlib currently does not support"


@contextmanager
def fixed_style() -> Iterator[None]:
    """One look on every machine, whatever its matplotlib settings; put back afterwards.

    A character that no installed font has is drawn as a box, and not complained of.
    """
    import matplotlib

    own: dict[Any, Any] = {
        "svg.hashsalt": "multiguard",
        "font.family": _installed_fonts(),
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": QUIET,
        "axes.labelcolor": QUIET,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
        "text.color": INK,
        "text.parse_math": False,
    }
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_LACKS_A_GLYPH)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(own)
        yield


def _installed_fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [_FONT, *(font for font in _MORE_FONTS if font in installed)]


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write the figure in every format, laid out once, so that all of them agree."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return [_save_one(figure, folder / f"{name}.{kind}", kind) for kind in _METADATA]


def _save_one(figure: "Figure", path: Path, kind: str) -> Path:
    def write(file: IO[bytes]) -> None:
        figure.savefig(file, format=kind, dpi=200, metadata=_METADATA[kind])

    write_atomically(path, write)
    return path


def new_figure(height: float, title: str, subtitle: str, *, header: float) -> tuple["Figure", float]:
    """A figure with its heading, and the share of its height that is left below it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    top = 1 - 0.1 / height
    figure.text(0.012, top, title, fontsize=11.5, fontweight="bold", va="top")
    figure.text(0.012, top - 0.24 / height, subtitle, fontsize=7.8, color=QUIET, va="top", linespacing=1.45)
    return figure, 1 - header / height


def legend_columns(names: Iterable[str]) -> int:
    """How many entries with such names fit beside each other."""
    return max(1, min(LEGEND_COLUMNS, int(_WIDTH / (0.85 + 0.075 * max(map(len, names))))))


def place_legend(figure: "Figure", axes: "Axes", left_below: float, **options: Any) -> None:
    """The legend of these axes, in the heading, just above the panels."""
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="lower left",
        bbox_to_anchor=(0.006, left_below - 0.02 / figure.get_figheight()),
        frameon=False,
        fontsize=8.5,
        **options,
    )


def dress(axes: "Axes", title: str, *, x: str, y: str) -> None:
    """Headings of a panel of curves, which stand on a ground of zero."""
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
