"""The main tables: one network at every noise, every method, n fixed and adaptive."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, WORDS, cells, csv_link, markdown
from benchmarks.results.sources import GRID, MAIN, Source
from multiguard.certify import Method, TopK
from multiguard.io.rounding import plain

METHODS: tuple[Method, ...] = ("coupled", "joint", "paper", "independent", "jia")
SMALL, STRICT, LARGE = TopK(k=3, k_prime=1), TopK(k=3, k_prime=3), TopK(k=10, k_prime=9)
_BEST_AT = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_SHOWN: tuple[Method, ...] = ("coupled", "joint", "paper", "jia")
_SHOWN_AT = ((0.5, 0.5), (0.5, 1.0), (1.0, 1.0), (1.0, 2.0))  # sigma and R of the table of methods
_TABLED = 2  # rules; the file has the others
_HEADS = ("sigma", "n", "k'", "k", "method", "score", *RADIUS_HEADS)
_DRAWS_METHODS: tuple[Method, ...] = ("coupled", "joint")
_DRAWS_AT = (0.0, 0.5, 1.0, 1.5)


def noises_block(sources: Sequence[Source]) -> dict[str, str]:
    """Recall that `coupled` certifies at each noise, the best of them first, for two k'."""
    rows = []
    for rule in (MAIN, LARGE) if sources[0].ranks >= LARGE.k_prime else (MAIN,):
        recall = [_recall(one, rule, METHODS[0], _BEST_AT) for one in sources]
        best = [max(column, key=float) for column in zip(*recall, strict=True)]
        name = f"{rule.k_prime}, {rule.k}"
        rows.append([name, "best", *(f"**{value}**" for value in best)])
        rows += [[name, plain(one.sigma), *values] for one, values in zip(sources, recall, strict=True)]
    heads = ["k', k", "sigma", *_radius_heads(_BEST_AT)]
    return {"noises": markdown(heads, rows, words=2)}


def _radius_heads(radii: Sequence[float]) -> list[str]:
    return [f"R = {plain(radii[0])}", *map(plain, radii[1:])]


def _recall(source: Source, rule: TopK, method: Method, radii: Sequence[float]) -> list[str]:
    recall = cells(source.scores(rule, method), "recall")
    return [recall[RADII.index(radius)] for radius in radii]


def methods_block(sources: Sequence[Source], rules: Sequence[TopK], docs: Path) -> dict[str, str]:
    """Certified recall of each method at each config, the curves of the first, and a file of all."""
    panels = [
        Panel(
            f"σ = {plain(one.sigma)}",
            "certified recall, %",
            GRID,
            [(m, 100 * one.scores(rules[0], m).recall) for m in METHODS],
        )
        for one in sources
    ]
    words = f"k′ = {rules[0].k_prime}, k = {rules[0].k}; {len(sources[0])} images, n = 1,000, α = 0.001."
    path = curves_figure(docs / IMAGES, "methods", "Certified recall of each method", words, panels)
    image = f"![Certified recall of each method against the radius, one panel for each noise]({IMAGES}/{path.name})"
    by_sigma = {one.sigma: one for one in sources}
    shown = [(by_sigma[sigma], sigma, radius) for sigma, radius in _SHOWN_AT if sigma in by_sigma]
    rows = [
        [
            f"{rule.k_prime}, {rule.k}",
            method,
            *(_recall(one, rule, method, [radius])[0] for one, _, radius in shown),
        ]
        for rule in rules[:_TABLED]
        for method in _SHOWN
    ]
    heads = ["k', k", "method", *(f"sigma {plain(sigma)}, R {plain(radius)}" for _, sigma, radius in shown)]
    table = markdown(heads, rows, words=2)
    every = [row for one in sources for row in _every_score(one, [*rules, LARGE])]
    link = csv_link(docs, "methods", _HEADS, every)
    return {"methods": f"{image}\n\n{table}\n\nEvery noise, score and radius: {link}."}


def _every_score(source: Source, rules: Sequence[TopK]) -> list[list[str]]:
    return [
        [plain(source.sigma), str(source.draws), str(rule.k_prime), str(rule.k), method, WORDS[measure], *scores]
        for rule in rules
        if rule.k_prime <= source.ranks
        for method in METHODS
        for measure in WORDS
        for scores in [cells(source.scores(rule, method), measure)]
    ]


def draws_block(source: Source, more: Source, adaptive: Source | None) -> dict[str, str]:
    """Certified recall at k' = 3, k = 10 from the first draws of all images, from more of them and from adaptive ones.

    Args:
        source: The first draws.
        more: All draws of the same images.
        adaptive: Adaptive draws of the same images, if there are any.
    """
    rows = [
        [f"{one.draws:,}, fixed", method, *_recall(one, MAIN, method, _DRAWS_AT)]
        for one in (source, more)
        for method in _DRAWS_METHODS
    ]
    if adaptive is not None:
        assert adaptive.run is not None
        assert adaptive.run.provenance.stopping is not None
        radii = " and ".join(map(plain, adaptive.run.provenance.stopping["radii"]))
        mean = float(np.mean([len(each) for each in adaptive.votes]))
        words = f"adaptive for R = {radii}: {mean:,.0f} on average, at most {adaptive.draws:,}"
        rows.append([words, "betting", *_recall(adaptive, MAIN, "betting", _DRAWS_AT)])
    return {"draws": markdown(["draws", "method", *_radius_heads(_DRAWS_AT)], rows, words=2)}
