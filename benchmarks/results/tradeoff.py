"""Certified recall against the number of draws, fixed and adaptive."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results.drawing import IMAGES, svg_figure
from benchmarks.results.markdown_tables import RADIUS_HEADS, cells, csv_link, markdown
from benchmarks.results.sources import ALPHA, MAIN, Source, kept_rows
from multiguard.certify import Gaussian, Method, TopK, settled_by_betting
from multiguard.io.rounding import percent_value, plain
from multiguard.report import figures
from multiguard.smooth import AdaptivePlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS = 0.5  # where adaptive draws are to settle the claims
FIXED, ADAPTIVE = (100, 200, 500, 1000, 2000, 5000, 10_000), (200, 500, 1000, 2000, 5000, 10_000)
_METHODS: tuple[Method, ...] = ("joint", "coupled")
_DRAWS_METHODS: tuple[Method, ...] = ("coupled", "betting", "joint")
_ADAPTIVE = "adaptive, betting"
_HEIGHT = 2.75


@dataclass(frozen=True)
class Point:
    """One plan of draws: what it is called, at most and on average how many draws, and the certified recall."""

    line: str
    most: int
    mean: float
    recall: float


def replayed(source: Source, rule: TopK, radius: float, most: int) -> Source:
    """The votes up to where `vote --draws adaptive` would have stopped each image."""
    path = source.path("replayed", repr(rule), plain(radius), str(most))
    (taken,), _ = kept_rows(path, lambda: [_taken(source, AdaptivePlan(rule, (radius,), most, ALPHA))])
    return source.shortened([int(draws) for draws in taken])


def _taken(source: Source, plan: AdaptivePlan) -> np.ndarray:
    taken = [plan.stops[0]] * len(source)
    options: dict[str, Any] = {"num_labels": source.num_labels, "noise": Gaussian(source.sigma), "alpha": plan.alpha}
    options |= {"radii": plan.radii, "draws": plan.max_draws, "forecast_margin": plan.forecast_margin}
    for now, following in zip(plan.stops, plan.stops[1:], strict=False):
        live = [i for i, draws in enumerate(taken) if draws == now]
        so_far = [source.votes[i][:now] for i in live], [source.labels[i] for i in live]
        for i, is_settled in zip(live, settled_by_betting(*so_far, plan.rule, **options), strict=True):
            taken[i] = now if is_settled else following
    return np.array(taken, dtype=np.float64)


def mean_draws(source: Source) -> float:
    """The draws of an image on average."""
    return float(np.mean([len(each) for each in source.votes]))


def draws_block(source: Source, more: Source, adaptive: Source | None) -> dict[str, str]:
    """Certified recall at k' = 3, k = 10 from the first draws of all images, from more of them and from adaptive ones.

    Args:
        source: The first draws.
        more: All draws of the same images; they have rows if they are more than the first.
        adaptive: Adaptive draws of the same images, if there are any.
    """
    fixed = [source, more] if more.draws > source.draws else [source]
    rows = [row for one in fixed for row in _fixed_rows(one)]
    if adaptive is not None:
        rows.append(_adaptive_row(adaptive))
    return {"draws": markdown(["draws", "method", *RADIUS_HEADS], rows, words=2)}


def _fixed_rows(source: Source) -> list[list[str]]:
    words = f"{source.draws:,}, fixed"
    return [[words, method, *cells(source.scores(MAIN, method), "recall")] for method in _DRAWS_METHODS]


def _adaptive_row(source: Source) -> list[str]:
    assert source.run is not None
    assert source.run.provenance.stopping is not None
    radii = " and ".join(map(plain, source.run.provenance.stopping["radii"]))
    words = f"adaptive for R = {radii}: {mean_draws(source):,.0f} on average, at most {source.draws:,}"
    return [words, "betting", *cells(source.scores(MAIN, "betting"), "recall")]


def tradeoff_block(source: Source, docs: Path) -> dict[str, str]:
    """Certified recall at R = 0.5 from fixed and from adaptive draws, as a figure and a table."""
    fixed = [n for n in FIXED if n <= source.draws]
    points = [Point(f"fixed, {method}", n, n, _recall(source, method, n)) for method in _METHODS for n in fixed]
    for most in (n for n in ADAPTIVE if n <= source.draws):
        drawn = replayed(source, MAIN, RADIUS, most)
        points.append(Point(_ADAPTIVE, most, mean_draws(drawn), _recall(drawn, "betting", most)))
    config = f"k′ = {MAIN.k_prime}, k = {MAIN.k}, σ = {plain(source.sigma)}, R = {plain(RADIUS)}, α = {plain(ALPHA)}"
    subtitle = f"{len(source)} validation images of MS-COCO, {config}; adaptive draws are replayed."
    path = svg_figure(lambda: tradeoff_figure(points, subtitle), docs / IMAGES, "tradeoff")
    image = f"![Certified recall against the average number of draws, fixed and adaptive]({IMAGES}/{path.name})"
    rows = [[p.line, f"{p.most:,}", f"{p.mean:,.0f}", percent_value(p.recall)] for p in points]
    link = csv_link(docs, "tradeoff", ["draws", "at most", "on average", "certified recall, %"], rows)
    found = {(point.line, point.most): point for point in points}
    most, method = max(point.most for point in points if point.line == _ADAPTIVE), _METHODS[1]
    few, all_of_them = found[_ADAPTIVE, most], found[f"fixed, {method}", most]
    words = (
        f"{few.mean:,.0f} adaptive draws on average certify {percent_value(few.recall)} %, {most:,} fixed ones "
        f"{percent_value(all_of_them.recall)} % by `{method}`."
    )
    return {"tradeoff": f"{image}\n\n{words} All points: {link}."}


def _recall(source: Source, method: Method, draws: int) -> float:
    return float(source.scores(MAIN, method, draws, radius=[RADIUS]).recall[0])


def tradeoff_figure(points: Sequence[Point], subtitle: str) -> "Figure":
    """A line for each kind of draws; a logarithmic axis of draws spreads the small numbers."""
    lines = list(dict.fromkeys(point.line for point in points))
    title = "Certified recall against the number of draws"
    figure, (axes,) = figures.new_figure(title, subtitle, height=_HEIGHT, legend_rows=1)
    for line, stroke in zip(lines, figures.distinct_strokes(len(lines)), strict=True):
        own = sorted((point.mean, 100 * point.recall) for point in points if point.line == line)
        figures.draw_line(axes, [x for x, _ in own], [y for _, y in own], stroke, line, markevery=1)
    figures.style_axes(axes, "", x="mean draws per image", y="certified recall, %")
    recalls, draws = [100 * point.recall for point in points], [point.mean for point in points]
    axes.set_ylim(min(recalls) - 1, max(recalls) + 1)
    axes.set_xscale("log")
    axes.set_xlim(min(draws) / 1.15, max(draws) * 1.15)
    ticks = [n for power in range(8) for n in (10**power, 2 * 10**power, 5 * 10**power)]
    shown = [n for n in ticks if min(draws) / 1.15 <= n <= max(draws) * 1.15]
    axes.set_xticks(shown, [f"{n:,}" for n in shown])
    axes.set_xticks([], minor=True)
    figures.add_legend(figure, axes, height=_HEIGHT, ncols=figures.legend_columns(lines))
    return figure
