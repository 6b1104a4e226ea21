"""The figure and the table of an attack: what is certified, what attacks reached, and the unknown in between."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import Method
from multiguard.evaluate import AttackCurve, Attacks, attack_curves
from multiguard.evaluate.attack_outcomes import BEST
from multiguard.io.files import require_folder
from multiguard.io.rounding import plain
from multiguard.report import canvas
from multiguard.report.canvas import DPI, FORMATS, Format, distinct_strokes
from multiguard.report.tables import ROUNDED_UP, Cell, ceiling, ceiling_fraction, radius_columns, write_table
from multiguard.report.words import left_out_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ATTACK_NAMES = {"pgd": "gradients (PGD)", "random": "random search", BEST: "best of all attacks"}
_UNKNOWN, _IMPOSSIBLE = "#e9e4d8", "#dce8f1"
_HEIGHT, _MARGIN = 3.1, 1.07
_POINTS = 400
_CHARACTERS_PER_LINE = 180
_NOTE = (
    "at each radius the best result there and below, rounded up. The true worst case lies between what is certified "
    "and what was reached. Radii of single labels are not attacked."
)


def draw_attack(attacks: Attacks, folder: Path, *, formats: Sequence[Format] = FORMATS, dpi: float = DPI) -> list[Path]:
    """The figure `attack` in each format; the same attacks give the same bytes.

    Averages over images first: what is certified, what each attack reached, and shaded between the certificate and
    the best attack what is unknown. Then every certified radius against the smallest radius at which an attack
    succeeded against it: a sound certificate has no point below the diagonal.

    Args:
        attacks: What attacks reached.
        folder: Where to write; created if missing.
        formats: The formats to write.
        dpi: The resolution of the PNG file.

    Example:
        >>> attacks = read_attacks(attack).attacks  # a folder written by `multiguard attack`
        >>> [path.name for path in draw_attack(attacks, out, formats=["svg"])]
        ['attack.svg']
    """
    require_folder(folder)
    with canvas.fixed_style():
        return canvas.save(attack_figure(attacks), folder, "attack", formats, dpi)


def write_attack_table(attacks: Attacks, folder: Path) -> list[Path]:
    """The table `attack` as CSV (without loss), Markdown and LaTeX, floors rounded down and ceilings up.

    Args:
        attacks: What attacks reached.
        folder: Where to write; created if missing.

    Example:
        >>> attacks = read_attacks(attack).attacks  # a folder written by `multiguard attack`
        >>> [path.name for path in write_attack_table(attacks, out)]
        ['attack.csv', 'attack.md', 'attack.tex']
    """
    require_folder(folder)
    columns = {"counted": "counted", "line": "by", **radius_columns(attacks.radii)}
    curves = attack_curves(attacks)
    rows = [row for curve in curves for row in _table_rows(curve)]
    kind = "true" if attacks.labelled else "predicted"
    words = f"{attack_words(attacks)}. {attacks.noise.unit_words}."
    caption = f"{kind.capitalize()} labels that stay, in %: certified and reached by attacks. {words}"
    notes = [_note(attacks), _sentence(verdict(attacks))]
    notes = [ROUNDED_UP, *notes] if any(curve.goal == "out" for curve in curves) else notes
    return write_table(folder, "attack", caption, notes, columns, rows)


def _note(attacks: Attacks) -> str:
    return f"What attacks reached is {'exact' if attacks.exact else 'an estimate'}: {_NOTE}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _table_rows(curve: AttackCurve) -> list[list[Cell]]:
    """Of labels that stay the certificate is the floor; of other labels the attack is."""
    stay = curve.goal == "in"
    counted = "labels that stay" if stay else "other labels returned"
    rows: list[list[Cell]] = [
        [counted, f"certified ({method})", *(float(value) if stay else ceiling(float(value)) for value in values)]
        for method, values in curve.certified.items()
    ]
    for name, values in curve.reached.items():
        cells = (ceiling_fraction(float(value)) if stay else f"{value:.2f}" for value in values)
        rows.append([counted, _ATTACK_NAMES.get(name, name), *cells])
    return rows


def attack_words(attacks: Attacks) -> str:
    """The smoothed classifier that was attacked, the images, and how the attacks were evaluated."""
    config = attacks.config
    words = [*config.rule.words.values()]
    if not attacks.exact:
        words += [f"n {'up to' if attacks.adaptive else '='} {config.draws}", f"α = {plain(config.alpha)}"]
    words.append(attacks.noise.words)
    missing = left_out_words(attacks.labelled, attacks.without_labels, attacks.failed)
    images = f"Mean over {len(attacks.images)} images{f' ({missing} left out)' if missing else ''}"
    how = f"all {attacks.draws} bands" if attacks.exact else f"{attacks.draws} fresh draws"
    return f"{', '.join(words)}. {images}; {how} evaluate each perturbation"


def verdict(attacks: Attacks) -> str:
    """How many certificates were broken out of how many that could be, and what weakens this, in one sentence."""
    broken = {method: len(attacks.broken(method)) for method in attacks.methods}
    seeming = {method: len(attacks.broken(method, surely=False)) - sure for method, sure in broken.items()}
    undecidable = {method: len(attacks.undecidable(method)) for method in attacks.methods}
    clauses = [
        _tested_words(attacks, broken),
        _counts_after("more seem broken, but so few draws cannot confirm it", seeming),
        _counts_after(f"{attacks.draws} draws could not confirm these as broken in any case", undecidable),
        f"gradients were 0 or not finite at some steps of {attacks.flat} images" if attacks.flat else "",
    ]
    return "; ".join(filter(None, clauses))


def _counts_after(words: str, counts: Mapping[Method, int]) -> str:
    listed = ", ".join(f"{count} ({method})" for method, count in counts.items() if count > 0)
    return f"{words}: {listed}" if listed else ""


def _tested_words(attacks: Attacks, broken: Mapping[Method, int]) -> str:
    """The methods grouped by their numbers of broken and of tested images."""
    groups: dict[tuple[int, int], list[str]] = {}
    for method, count in broken.items():
        groups.setdefault((count, len(attacks.tested(method))), []).append(method)
    if not any(tested for _, tested in groups):
        return f"no certificate was tested: none of {len(attacks.images)} images was attacked inside its radius"
    head = "certificates were broken" if any(broken.values()) else "no certificate was broken"
    listed = [f"{count} of {tested} ({', '.join(methods)})" for (count, tested), methods in groups.items()]
    return f"{head}: " + ", ".join(listed).replace(" (", " certified images, attacked inside their radius (", 1)


def attack_figure(attacks: Attacks) -> "Figure":
    """A panel of averages for each goal, and one of every certified radius."""
    method = attacks.methods[0]
    fine = np.unique([*np.linspace(0, attacks.radii[-1], _POINTS), *attacks.radii])  # close enough for steps
    curves = attack_curves(attacks, fine)
    widths = [1.25] * len(curves) + [1]
    domain = "stay in [0, 1]" if attacks.plan.get("box") or attacks.noise.whole else "may leave [0, 1]"
    words = f"{attacks.noise.unit_words}. Perturbed images {domain}. {_sentence(verdict(attacks))}"
    lines = textwrap.wrap(words, _CHARACTERS_PER_LINE)
    title, subtitle = "Certified robustness and attacks", "\n".join([f"{attack_words(attacks)}.", *lines])
    figure, panels = canvas.new_figure(title, subtitle, height=_HEIGHT, legend_rows=1, widths=widths)
    for axes, curve, letter in zip(panels, curves, "abc", strict=False):
        _draw_averages(axes, attacks, curve, method)
        stay = ("True" if attacks.labelled else "Predicted") + " labels that stay"
        title = f"({letter})  {stay if curve.goal == 'in' else 'Other labels returned'}"
        canvas.style_axes(axes, title, x=attacks.noise.axis_label, y="%" if curve.goal == "in" else "labels per image")
        axes.set_xlim(0, float(curve.radius[-1]))
        axes.set_ylim(top=100 if curve.goal == "in" else None)
    _draw_radii(panels[-1], attacks, method, "abc"[len(curves)])
    canvas.add_legend(figure, panels[0], height=_HEIGHT, ncols=5, handlelength=3.6, columnspacing=1.6)
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
        canvas.draw_line(axes, curve.radius, reached, stroke, _ATTACK_NAMES.get(name, name), bold=bold, **style)


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
