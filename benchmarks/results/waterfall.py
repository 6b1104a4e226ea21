"""What each step is worth: certified recall from the public code's statistics to the best that we prove."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.results.choice import Choice, k_primes
from benchmarks.results.drawing import IMAGES, svg_figure
from benchmarks.results.markdown_tables import markdown
from benchmarks.results.sources import ALPHA, MAIN, Source
from benchmarks.results.statistics import PUBLIC, statistics_radii
from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.io.rounding import percent_value, plain
from multiguard.report import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AT = (0.5, 1.0)
_HEIGHT = 3.3


@dataclass(frozen=True)
class Step:
    """One step: what it adds, and the certified recall with it at the two radii."""

    words: str
    how: str
    recall: tuple[float, float]


def waterfall_block(
    older: Source, earlier: Source | None, source: Source, noises: Sequence[Source], docs: Path, method: Method
) -> dict[str, str]:
    """The steps as a figure and a table.

    Args:
        older: Votes of the network from 3,000 images.
        earlier: Votes of the first network from the full training set.
        source: Votes of the current network.
        noises: Votes of the current networks of every noise.
        docs: The folder of the page.
        method: The method of the last step.
    """
    public = older.average(statistics_radii(older, MAIN, PUBLIC), MAIN, _AT).recall
    steps = [
        Step("public code's statistics", "n k' trials, no cap", _at(public)),
        Step("corrected Theorem 1", "`paper`", _recall(older, "paper")),
        Step("joint certificate", "`joint`", _recall(older, "joint")),
        _tuned("tuned k'", [older]),
        *([_tuned("full data, U-Net, training", [earlier])] if earlier is not None else []),
        _tuned("teacher, larger input" if earlier is not None else "full data, U-Net, training", [source]),
        *([_tuned("tuned sigma", noises)] if len(noises) > 1 else []),
        *([_tuned("betting certificate", noises, method)] if method != "joint" else []),
    ]
    config = f"k = {MAIN.k}, α = {plain(ALPHA)}, n = {source.draws:,}"
    start = f"k′ = {MAIN.k_prime} and σ = {plain(source.sigma)} until they are tuned"
    subtitle = f"{len(source)} validation images of MS-COCO, {config}; {start}."
    path = svg_figure(lambda: _figure(steps, subtitle), docs / IMAGES, "waterfall")
    rows = []
    for before, step in zip([None, *steps], steps, strict=False):
        pairs = [(now, None if before is None else now - before.recall[i]) for i, now in enumerate(step.recall)]
        numbers = [text for now, gain in pairs for text in (percent_value(now), "" if gain is None else _points(gain))]
        rows.append([step.words, step.how, *numbers])
    heads = ["step", "how", "R = 0.5", "gain", "R = 1", "gain"]
    image = f"![Certified recall step by step, at R = 0.5 and R = 1]({IMAGES}/{path.name})"
    return {"waterfall": f"{image}\n\n{markdown(heads, rows, words=2)}"}


def _points(gain: float) -> str:
    return f"{round(100 * gain, 1) + 0.0:+.1f}"


def _at(values: Floats) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _recall(source: Source, method: str) -> tuple[float, float]:
    return _at(source.scores(MAIN, method, radius=_AT).recall)


def _tuned(words: str, sources: Sequence[Source], method: Method = "joint") -> Step:
    """The recall with a tuned k', and the noise tuned as well if there are several."""
    choice = Choice([one for source in sources for one in k_primes(source)], "recall", _AT)
    (near, far), (sigma, other) = choice.values("k_prime"), choice.values("sigma")
    chosen = f"k' = {near} for R = 0.5, {far} for R = 1"
    if len(sources) > 1:
        chosen = f"sigma = {sigma}, k' = {near} for R = 0.5; sigma = {other}, k' = {far} for R = 1"
    return Step(words, f"`{method}`, {chosen}, on {choice.words()}", _at(choice.scores(method, "recall")))


def _figure(steps: Sequence[Step], subtitle: str) -> "Figure":
    figure, axes = canvas.new_figure("What each step is worth", subtitle, height=_HEIGHT, widths=[1, 1], fit=True)
    for place, (each, radius) in enumerate(zip(axes, _AT, strict=True)):
        _draw(each, steps, place)
        canvas.style_axes(each, f"({'ab'[place]})  R = {plain(radius)}", x="certified recall, %", y="")
        each.set_xlim(0, 100 * max(step.recall[place] for step in steps) + 17)
        each.grid(axis="x", color=canvas.RULE, linewidth=0.6)
        each.grid(axis="y", visible=False)
        each.set_ylim(len(steps) - 0.5, -0.5)
    return figure


def _draw(axes: "Axes", steps: Sequence[Step], place: int) -> None:
    """A bar for each step, from where the one before ended."""
    colours = [stroke.light for stroke in canvas.distinct_strokes(8)]
    before = 0.0
    for row, step in enumerate(steps):
        now = 100 * step.recall[place]
        first = row == 0
        colour = "#8a8a8a" if first else colours[0] if now >= before else colours[7]
        axes.barh(row, now - before, left=before, height=0.62, color=colour)
        axes.plot(
            [now, now],
            [row - 0.31, row + 1.31 if row + 1 < len(steps) else row + 0.31],
            color=canvas.QUIET,
            linewidth=0.7,
        )
        text = (
            percent_value(step.recall[place])
            if first
            else f"{percent_value(step.recall[place])}  ({_points((now - before) / 100)})"
        )
        axes.text(max(now, before) + 1, row, text, va="center", fontsize=8)
        before = now
    axes.set_yticks(range(len(steps)), [step.words for step in steps] if place == 0 else [""] * len(steps))
