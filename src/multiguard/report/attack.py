"""The figure of an attack: what is proved, what was reached, and between them what nobody knows."""

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.evaluate import AttackCurve, Attacks, attack_curves
from multiguard.evaluate.attacked import BEST
from multiguard.io.files import require_folder
from multiguard.report import canvas
from multiguard.report.attack_words import asked_words, attack_name, verdict
from multiguard.report.strokes import MARKERS, Stroke, strokes_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RADIUS = "R (ℓ₂-norm of the change)"
_TITLE = "What is proved, and what attacks reach"
_UNKNOWN, _IMPOSSIBLE = "#e9e4d8", "#dce8f1"
_MARGIN = 1.07
_POINTS = 400
_LETTERS, _LINE = 180, 0.16  # of a line of the heading: how many fit, and how high it is


@dataclass(frozen=True)
class _Fall:
    """One number of labels of one image: up to where it is proved to stay, and where an attack brought it down."""

    proved: float
    fell: float


def draw_attack(attacks: Attacks, folder: Path) -> list[Path]:
    """The figure `attack` as PNG, SVG and PDF; the same bytes for the same attacks.

    Averages over images first: what is certified, what each attack reached, and shaded between the certificate and
    the best attack what is not known. Then every certified radius beside the smallest radius at which an attack
    brought down what it certifies: a sound certificate has no point below the diagonal.

    Args:
        attacks: What attacks reached.
        folder: Where to write; made if it is not there.

    Returns:
        The three files.
    """
    require_folder(folder)
    with canvas.fixed_style():
        return canvas.save(_draw(attacks), folder, "attack")


def _draw(attacks: Attacks) -> "Figure":
    drawn, method = attack_curves(attacks, _fine(attacks)), attacks.methods[0]
    subtitle = _subtitle(attacks)
    header = 1.0 + _LINE * max(0, subtitle.count("\n") - 1)
    figure, left_below = canvas.new_figure(3.1 + header, _TITLE, subtitle, header=header)
    figure.get_layout_engine().set(rect=(0, 0, 1, left_below), wspace=0.06)  # type: ignore[union-attr, call-arg]
    widths = [1.25] * len(drawn) + [1]
    panels = figure.subplots(1, len(widths), squeeze=False, gridspec_kw={"width_ratios": widths})[0]
    for axes, curve, letter in zip(panels, drawn, "abc", strict=False):
        _draw_curve(axes, attacks, curve, method)
        _dress_curve(axes, attacks, curve, letter)
    _draw_falls(panels[-1], attacks, method, "abc"[len(drawn)])
    canvas.place_legend(figure, panels[0], left_below, ncols=5, handlelength=3.6, columnspacing=1.6)
    return figure


def _fine(attacks: Attacks) -> Floats:
    """Radii so close that a curve of steps is drawn as one, those of the grid among them."""
    between = np.linspace(0, attacks.radii[-1], _POINTS)
    return np.unique(np.concatenate([between, attacks.radii]))


def _subtitle(attacks: Attacks) -> str:
    where = "stay in [0, 1]" if attacks.plan.get("box") else "may leave [0, 1]"
    told = textwrap.wrap(f"Changed images {where}. {verdict(attacks).capitalize()}.", _LETTERS)
    return "\n".join([f"{asked_words(attacks)}.", *told])


def _draw_curve(axes: "Axes", attacks: Attacks, curve: AttackCurve, method: Method) -> None:
    """What an attack reached holds from its radius on, and a certificate up to its own: steps, nothing in between."""
    scale = 100 if curve.goal == "in" else 1
    best = curve.reached[BEST if BEST in curve.reached else attacks.names[0]]
    axes.fill_between(
        curve.radius, scale * curve.certified[method], scale * best, color=_UNKNOWN, linewidth=0, label="not known"
    )
    marked = np.searchsorted(curve.radius, attacks.radii).tolist()
    names = [*curve.reached]
    proved, *others = strokes_apart(1 + len(names))
    _line(axes, curve.radius, scale * curve.certified[method], proved, marked, f"certified ({method})", step="pre")
    for name, stroke in zip(reversed(names), others, strict=True):
        _line(axes, curve.radius, scale * curve.reached[name], stroke, marked, attack_name(name), step="post")


def _line(
    axes: "Axes", radius: Floats, values: Floats, stroke: Stroke, marked: list[int], name: str, *, step: str
) -> None:
    wide = step == "pre" or name == attack_name(BEST)
    axes.plot(
        radius,
        values,
        drawstyle=f"steps-{step}",
        color=stroke.light,
        linewidth=2.2 if wide else 1.4,
        dashes=stroke.dash or (None, None),
        marker=MARKERS[stroke.marker],
        markevery=marked,
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=name,
        zorder=3 if wide else 4,
        clip_on=False,
    )


def _dress_curve(axes: "Axes", attacks: Attacks, curve: AttackCurve, letter: str) -> None:
    kind = "True" if attacks.labelled else "Predicted"
    title = f"{kind} labels that stay" if curve.goal == "in" else "Other labels that come in"
    canvas.dress(axes, f"({letter})  {title}", x=_RADIUS, y="%" if curve.goal == "in" else "labels an image")
    axes.set_xlim(0, float(curve.radius[-1]))
    if curve.goal == "in":
        axes.set_ylim(0, 100)


def _draw_falls(axes: "Axes", attacks: Attacks, method: Method, letter: str) -> None:
    """Each certified radius beside where an attack brought down what it certifies."""
    falls = _falls(attacks, method)
    top = attacks.radii[-1] * _MARGIN
    axes.fill_between([0, top], [0, top], color=_IMPOSSIBLE, linewidth=0, zorder=0)
    axes.plot([0, top], [0, top], color=canvas.QUIET, linewidth=0.9, zorder=1)
    fell = [fall for fall in falls if fall.fell < math.inf]
    held = [fall for fall in falls if fall.fell == math.inf]
    dots: dict[str, Any] = {"linewidths": 0, "zorder": 3, "clip_on": False}
    colour = strokes_apart(2)[1].light
    axes.scatter([f.proved for f in fell], [f.fell for f in fell], s=16, color=colour, alpha=0.5, **dots)
    axes.scatter([f.proved for f in held], [top] * len(held), s=14, marker="^", color=canvas.QUIET, alpha=0.3, **dots)
    canvas.dress(
        axes, f"({letter})  Each certified radius", x="certified radius", y="smallest attack that brought it down"
    )
    axes.set(xlim=(0, top), ylim=(0, top))
    # A sound certificate leaves this corner empty.
    words = f"proved impossible\n\n● {len(fell)} brought down by an attack\n▲ {len(held)} by none"
    axes.text(0.97 * top, 0.04 * top, words, ha="right", va="bottom", color=canvas.QUIET, fontsize=8, linespacing=1.3)


def _falls(attacks: Attacks, method: Method) -> list[_Fall]:
    """Of every image and every certified number of labels of L; what cannot fail or was not certified is left out."""
    falls = []
    for image in attacks.images:
        for below, radius in enumerate(image.proved["in"][method]):
            if 0 <= radius < math.inf:
                down = [r.radius for r in image.reached if r.goal == "in" and r.size <= below]
                falls.append(_Fall(float(radius), min(down, default=math.inf)))
    return falls
