"""The main table: every noise, every method, at the paper's configs and at those that `tune` chooses."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.choice import Candidate, Choice, k_primes
from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADIUS_HEADS, WORDS, cells, markdown
from benchmarks.results.sources import GRID, MAIN, Source
from multiguard.certify import Method, TopK
from multiguard.evaluate import candidate_rules
from multiguard.io.rounding import percent_value, plain
from multiguard.votes import Provenance

METHODS: tuple[Method, ...] = ("coupled", "joint", "paper", "independent", "jia")
SMALL, STRICT = TopK(k=3, k_prime=1), TopK(k=3, k_prime=3)
_TUNED: tuple[Method, ...] = ("joint", "paper")
_THRESHOLD_METHODS: tuple[Method, ...] = ("joint", "independent")


def methods_block(sources: Sequence[Source], rule: TopK, methods: Sequence[Method], docs: Path) -> dict[str, str]:
    """Certified precision, recall and F1 of each noise and method at one config, and the recall as a figure."""
    found = {(one.sigma, method): one.scores(rule, method) for one in sources for method in methods}
    panels = [
        Panel(
            f"σ = {plain(one.sigma)}",
            "certified recall, %",
            GRID,
            [(m, 100 * found[one.sigma, m].recall) for m in methods],
        )
        for one in sources
    ]
    words = f"k′ = {rule.k_prime}, k = {rule.k}; {len(sources[0])} images, n = {sources[0].draws:,}, α = 0.001."
    name = f"methods-{rule.k_prime}-{rule.k}"
    path = curves_figure(docs / IMAGES, name, "Certified recall of each method", words, panels)
    rows = [
        [plain(sigma), method, WORDS[measure], *cells(scores, measure)]
        for (sigma, method), scores in found.items()
        for measure in WORDS
    ]
    image = f"![Certified recall of each method against the radius, one panel for each noise]({IMAGES}/{path.name})"
    return {name: f"{image}\n\n{markdown(['sigma', 'method', 'score', *RADIUS_HEADS], rows, words=3)}"}


def draws_block(source: Source, more: Source | None, adaptive: Source | None) -> dict[str, str]:
    """Certified recall at k' = 3, k = 10 with a fixed n, with more draws, and with adaptive ones."""
    lines = (
        [(source, source.draws)] if more is None else [(source, source.draws), (more, source.draws), (more, more.draws)]
    )
    rows = [
        [f"`{one.name}`", f"{n:,}, fixed", str(len(one)), "joint", *cells(one.scores(MAIN, "joint", n), "recall")]
        for one, n in lines
    ]
    if adaptive is not None:
        mean = float(np.mean([len(each) for each in adaptive.votes]))
        words = f"adaptive, {mean:,.0f} on average, at most {adaptive.draws:,}"
        proved = cells(adaptive.scores(MAIN, "betting"), "recall")
        rows.append([f"`{adaptive.name}`", words, str(len(adaptive)), "betting", *proved])
    return {"draws": markdown(["votes", "draws", "images", "method", *RADIUS_HEADS], rows, words=4)}


def tuned_block(pairs: Sequence[tuple[Source, Source | None]]) -> dict[str, str]:
    """Certified recall at k = 10 with the k', and the noise, that certify most at each radius on other images."""
    rows = []
    for source, other in pairs:
        choice = Choice(k_primes(source, other), "recall")
        rows += _tuned_rows(plain(source.sigma), choice)
        rows += [
            [plain(source.sigma), f"{method}, k' = 3", *cells(source.scores(MAIN, method), "recall")]
            for method in _TUNED
        ]
    if len(pairs) > 1:
        rows += _tuned_rows("chosen", Choice([one for source, _ in pairs for one in k_primes(source)], "recall"))
    return {"tuned": markdown(["sigma", "", *RADIUS_HEADS], rows, words=2)}


def _tuned_rows(sigma: str, choice: Choice) -> list[list[str]]:
    chosen = [[sigma, f"k', chosen on {choice.words()}", *choice.values("k_prime")]]
    if sigma not in choice.values("sigma"):
        chosen.append([sigma, "sigma", *choice.values("sigma")])
    scores = {method: choice.scores(method, "recall").tolist() for method in _TUNED}
    return [*chosen, *([sigma, f"{m}, tuned k'", *map(percent_value, values)] for m, values in scores.items())]


def threshold_block(source: Source, other: Source | None) -> dict[str, str]:
    """The threshold rule at the t of the largest certified F1 at each radius on other images."""
    choice = Choice([Candidate(source, rule, other) for rule in candidate_rules(_run(source))], "f1")
    rows = [["t", "", *choice.values("t")]]
    for method in _THRESHOLD_METHODS:
        for measure, word in (("precision", "precision"), ("recall", "recall"), ("f1", "F1")):
            rows.append([method, word, *map(percent_value, choice.scores(method, measure).tolist())])
    who = f"t chosen on {choice.words()}"
    return {"threshold": f"{who[0].upper()}{who[1:]}:\n\n{markdown(['method', 'score', *RADIUS_HEADS], rows, words=2)}"}


def _run(source: Source) -> Provenance:
    assert source.run is not None
    return source.run.provenance
