"""The main table: every noise, every method, at the paper's configs and at those that other images choose."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.choice import Candidate, Choice, k_primes
from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, WORDS, cells, markdown
from benchmarks.results.sources import GRID, MAIN, Pair, Source
from multiguard.certify import Method, Threshold, TopK
from multiguard.io.rounding import percent_value, plain

METHODS: tuple[Method, ...] = ("coupled", "betting", "joint", "paper", "independent", "jia")
SMALL, STRICT = TopK(k=3, k_prime=1), TopK(k=3, k_prime=3)
_TUNED_FOR = (0.5, 1.0)
_FEW = 50  # images
_SMALLER = 224  # pixels; the other networks have twice as many


def methods_block(sources: Sequence[Source], rule: TopK, docs: Path) -> dict[str, str]:
    """Certified precision, recall and F1 of each noise and method at one config, and the recall as a figure."""
    found = {(one.sigma, method): one.scores(rule, method) for one in sources for method in METHODS}
    panels = [
        Panel(
            f"σ = {plain(one.sigma)}",
            "certified recall, %",
            GRID,
            [(m, 100 * found[one.sigma, m].recall) for m in METHODS],
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


def many_draws_block(source: Source, rules: Sequence[TopK]) -> dict[str, str]:
    """Certified precision, recall and F1 of each method from all draws of one network."""
    rows = [
        [f"{rule.k_prime}, {rule.k}", method, WORDS[measure], *cells(source.scores(rule, method), measure)]
        for rule in rules
        for method in METHODS
        for measure in WORDS
    ]
    table = markdown(["k', k", "method", "score", *RADIUS_HEADS], rows, words=3)
    return {"many-draws": f"n = {source.draws:,}, sigma = {plain(source.sigma)}, {len(source)} images:\n\n{table}"}


def sizes_block(smaller: Source, sources: Sequence[Source]) -> dict[str, str]:
    """Certified recall of networks of two input sizes, and at the same perturbation of the photo."""
    heads, rows = ["pixels", "votes", "sigma", *RADIUS_HEADS], []
    for pixels, one in ((_SMALLER, smaller), *((2 * _SMALLER, one) for one in sources)):
        recall = cells(one.scores(MAIN, "joint"), "recall")
        rows.append([f"{pixels} x {pixels}", f"`{one.name}`", plain(one.sigma), *recall])
    said = [_same_photo(smaller, one) for one in sources if one.sigma == 2 * smaller.sigma]
    return {"sizes": "\n\n".join([markdown(heads, rows, words=2), *said])}


def _same_photo(smaller: Source, larger: Source) -> str:
    """What both sizes certify against the same perturbation of the photo."""
    recall = [cells(one.scores(MAIN, "joint"), "recall") for one in (smaller, larger)]
    pairs = [(i, RADII.index(2 * radius)) for i, radius in enumerate(RADII) if 2 * radius in RADII]
    (here, there), values = (
        [", ".join(plain(RADII[pair[side]]) for pair in pairs) for side in (0, 1)],
        [", ".join(recall[side][pair[side]] for pair in pairs) for side in (0, 1)],
    )
    return (
        f"At R = {there} `{larger.name}` certifies {values[1]} %. At half of that, R = {here}, which is the same "
        f"perturbation of the photo, `{smaller.name}` certifies {values[0]} %."
    )


def tuned_block(pairs: Sequence[Pair]) -> dict[str, str]:
    """Certified scores at k = 10 with the k', and the sigma, that other images choose for one radius."""
    choices = [Choice(k_primes(*pair), "recall", _TUNED_FOR) for pair in pairs]
    every = Choice([one for choice in choices for one in choice.candidates], "recall", _TUNED_FOR)
    heads = ["sigma", "tuned for", "k'", "method"]
    heads += [f"{word} at R = {plain(radius)}" for radius in _TUNED_FOR for word in WORDS.values()]
    table = markdown(heads, [row for choice in choices for row in _tuned_rows(choice)], words=4)
    who = " or ".join(dict.fromkeys(choice.words() for choice in choices))
    recall = map(percent_value, every.scores(METHODS[0], "recall").tolist())
    best = zip(_TUNED_FOR, every.values("sigma"), every.values("k_prime"), recall, strict=True)
    both = [f"sigma = {sigma}, k' = {k_prime} for R = {plain(r)} ({share} %)" for r, sigma, k_prime, share in best]
    also = f"With sigma tuned as well: {', '.join(both)}; in brackets the recall that `{METHODS[0]}` certifies."
    return {"tuned": f"Chosen on {who}:\n\n{table}\n\n{also}"}


def _tuned_rows(choice: Choice) -> list[list[str]]:
    """A row for each radius and method; none where nothing is certified, so that nothing was chosen."""
    chosen = zip(
        _TUNED_FOR, choice.values("sigma"), choice.values("k_prime"), choice.scores("joint", "recall"), strict=True
    )
    rows = []
    for place, (radius, sigma, k_prime, recall) in enumerate(chosen):
        for method in METHODS if recall > 0 else ():
            scores = np.stack([choice.curve(method, measure, place, _TUNED_FOR) for measure in WORDS], axis=1)
            rows.append([sigma, f"R = {plain(radius)}", k_prime, method, *map(percent_value, scores.ravel().tolist())])
    return rows


def threshold_block(pairs: Sequence[Pair]) -> dict[str, str]:
    """The threshold rule at the t, and the score threshold, of the largest certified F1 at each radius elsewhere.

    The method betting takes a second for each image here, so it has a table of fewer images and radii.
    """
    choice = Choice(_thresholds(pairs), "f1")
    rows = [["t", "", *choice.values("t")], ["score threshold", "", *choice.values("score threshold")]]
    table = markdown(["method", "score", *RADIUS_HEADS], rows + _method_rows(choice, ("joint", "independent")), words=2)
    few = [(source.subset(range(min(_FEW, len(source)))), other) for source, other in pairs]
    rows = _method_rows(Choice(_thresholds(few), "f1", _TUNED_FOR), ("betting", "joint", "independent"))
    less = markdown(["method", "score", *(f"R = {plain(radius)}" for radius in _TUNED_FOR)], rows, words=2)
    words = f"The first {len(few[0][0])} of these images, by `betting` as well"
    return {"threshold": f"Chosen on {choice.words()}:\n\n{table}\n\n{words}:\n\n{less}"}


def _thresholds(pairs: Sequence[Pair]) -> list[Candidate]:
    return [
        Candidate(source, rule, other)
        for source, other in pairs
        if source.run is not None
        for rule in (Threshold(step / 20) for step in range(1, 20))
    ]


def _method_rows(choice: Choice, methods: Sequence[Method]) -> list[list[str]]:
    return [
        [method, word, *map(percent_value, choice.scores(method, measure).tolist())]
        for method in methods
        for measure, word in WORDS.items()
    ]
