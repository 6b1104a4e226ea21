"""What each step is worth: certified recall from the public code's statistics to the best that we prove."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.results.choice import Choice, k_primes
from benchmarks.results.drawing import IMAGES, svg_figure
from benchmarks.results.markdown_tables import markdown
from benchmarks.results.sources import ALPHA, MAIN, Pair, Source
from benchmarks.results.statistics import PUBLIC, statistics_radii
from benchmarks.results.tradeoff import mean_draws, replayed
from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.io.rounding import percent_value, plain
from multiguard.report import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AT = (0.5, 1.0)
_METHODS: dict[str, Method] = {
    "corrected Theorem 1": "paper",
    "joint certificate": "joint",
    "betting": "betting",
    "coupled": "coupled",
}
_METHOD: Method = "coupled"
_HEIGHT = 3.9
_GREY = "#8a8a8a"


@dataclass(frozen=True)
class Step:
    """One step: what it adds, the certified recall with it at the two radii, and whether R means the same as before."""

    words: str
    how: str
    recall: tuple[float, float]
    same: bool = True


@dataclass(frozen=True)
class Networks:
    """The votes of the networks that the steps are measured on.

    Attributes:
        older: From 3,000 images.
        full_data: The same from the full training set.
        smaller: From the full training set, behind a denoiser, with a teacher; images of 224 pixels.
        now: The current one of sigma = 0.5, and its votes on training images, if there are any.
        noises: The same of every noise.
    """

    older: Source
    full_data: Source
    smaller: Source
    now: Pair
    noises: Sequence[Pair]


def waterfall_block(networks: Networks, docs: Path) -> dict[str, str]:
    """The steps as a figure and a table."""
    steps = _steps(networks)
    now, _ = networks.now
    config = f"k = {MAIN.k}, α = {plain(ALPHA)}, n = {now.draws:,}"
    start = f"k′ = {MAIN.k_prime} and σ = {plain(now.sigma)} until they are tuned; grey: not a gain of the method"
    subtitle = f"{len(now)} validation images of MS-COCO, {config}; {start}."
    path = svg_figure(lambda: _figure(steps, subtitle), docs / IMAGES, "waterfall")
    rows = []
    for before, step in zip([None, *steps], steps, strict=False):
        pairs = [(value, None if before is None else value - before.recall[i]) for i, value in enumerate(step.recall)]
        numbers = [
            text for value, gain in pairs for text in (percent_value(value), "" if gain is None else _points(gain))
        ]
        rows.append([step.words, step.how, *numbers])
    heads = ["step", "how", "R = 0.5", "gain", "R = 1", "gain"]
    image = f"![Certified recall step by step, at R = 0.5 and R = 1]({IMAGES}/{path.name})"
    return {"waterfall": f"{image}\n\n{markdown(heads, rows, words=2)}"}


def _steps(networks: Networks) -> list[Step]:
    older = networks.older
    public = older.average(statistics_radii(older, MAIN, PUBLIC), MAIN, _AT).recall
    steps = [Step("public code's statistics", "n k' trials, no cap", _at(public))]
    for words, method in _METHODS.items():
        steps.append(Step(words, f"`{method}`", _at(older.scores(MAIN, method, radius=_AT).recall)))
    return [
        *steps,
        _adaptive(older),
        _tuned("tuned k', fixed draws", [(older, None)]),
        _tuned("full data", [(networks.full_data, None)]),
        _tuned("denoiser, training, teacher", [(networks.smaller, None)]),
        _tuned("448-pixel input", [networks.now], same=False),
        _tuned("tuned sigma", networks.noises),
    ]


def _adaptive(source: Source) -> Step:
    """As many draws as each image needs, at most as many as before; it stops for one radius at a time."""
    drawn = [replayed(source, MAIN, radius, source.draws) for radius in _AT]
    recall = [one.scores(MAIN, "betting", radius=[radius]).recall[0] for one, radius in zip(drawn, _AT, strict=True)]
    means = " and ".join(f"{mean_draws(one):,.0f}" for one in drawn)
    return Step(
        "adaptive draws", f"`betting`, {means} draws on average, at most {source.draws:,}", _at(np.array(recall))
    )


def _tuned(words: str, pairs: Sequence[Pair], *, same: bool = True) -> Step:
    """The recall with a tuned k', and the noise tuned as well if there are several."""
    choice = Choice([one for pair in pairs for one in k_primes(*pair)], "recall", _AT)
    (near, far), (sigma, other) = choice.values("k_prime"), choice.values("sigma")
    chosen = f"k' = {near} for R = 0.5; {far} for R = 1"
    if len(pairs) > 1:
        chosen = f"sigma = {sigma}, k' = {near} for R = 0.5; sigma = {other}, k' = {far} for R = 1"
    return Step(words, f"`{_METHOD}`, {chosen}", _at(choice.scores(_METHOD, "recall")), same)


def _points(gain: float) -> str:
    return f"{round(100 * gain, 1) + 0.0:+.1f}"


def _at(values: Floats) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _figure(steps: Sequence[Step], subtitle: str) -> "Figure":
    figure, axes = figures.new_figure("What each step is worth", subtitle, height=_HEIGHT, widths=[1, 1], fit=True)
    for place, (each, radius) in enumerate(zip(axes, _AT, strict=True)):
        _draw(each, steps, place)
        figures.style_axes(each, f"({'ab'[place]})  R = {plain(radius)}", x="certified recall, %", y="")
        each.set_xlim(0, 100 * max(step.recall[place] for step in steps) + 24)
        each.grid(axis="x", color=figures.RULE, linewidth=0.6)
        each.grid(axis="y", visible=False)
        each.set_ylim(len(steps) - 0.5, -0.5)
    return figure


def _draw(axes: "Axes", steps: Sequence[Step], place: int) -> None:
    """A bar for each step, from where the one before ended."""
    colours = [stroke["light"] for stroke in figures.distinct_strokes(8)]
    before = 0.0
    for row, step in enumerate(steps):
        now, first = 100 * step.recall[place], row == 0
        colour = _GREY if first or not step.same else colours[0] if now >= before else colours[7]
        axes.barh(row, now - before, left=before, height=0.62, color=colour)
        end = row + 1.31 if row + 1 < len(steps) else row + 0.31
        axes.plot([now, now], [row - 0.31, end], color=figures.QUIET, linewidth=0.7)
        gain = "" if first else f"  ({_points((now - before) / 100)})"
        axes.text(max(now, before) + 1, row, f"{percent_value(step.recall[place])}{gain}", va="center", fontsize=8)
        before = now
    axes.set_yticks(range(len(steps)), [step.words for step in steps] if place == 0 else [""] * len(steps))
