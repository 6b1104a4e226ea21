"""The main table: every noise, every method, at the paper's configs and at those that other images choose."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.choice import Candidate, Choice, k_primes
from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, WORDS, cells, csv_link, markdown
from benchmarks.results.sources import GRID, MAIN, Pair, Source
from multiguard.certify import Method, Threshold, TopK
from multiguard.io.rounding import percent_value, plain

METHODS: tuple[Method, ...] = ("coupled", "betting", "joint", "paper", "independent", "jia")
SMALL, STRICT = TopK(k=3, k_prime=1), TopK(k=3, k_prime=3)
_TUNED_FOR, _LABELS_AT = (0.5, 1.0), (0.0, 0.5, 1.0)
_SHOWN: tuple[Method, ...] = ("coupled", "joint", "paper", "jia")
_SIGMA, _SHOWN_AT = 0.5, (0.0, 0.5, 1.0)  # what the page shows of all methods
_SMALLER = 224  # pixels; the other networks have twice as many


def methods_block(sources: Sequence[Source], rules: Sequence[TopK], docs: Path) -> dict[str, str]:
    """Certified recall of each method at each config under one noise, the curves of the first, and a file of all."""
    main = next(one for one in sources if one.sigma == _SIGMA)
    panels = [
        Panel(
            f"σ = {plain(one.sigma)}",
            "certified recall, %",
            GRID,
            [(m, 100 * one.scores(rules[0], m).recall) for m in METHODS],
        )
        for one in sources
    ]
    words = f"k′ = {rules[0].k_prime}, k = {rules[0].k}; {len(main)} images, n = {main.draws:,}, α = 0.001."
    path = curves_figure(docs / IMAGES, "methods", "Certified recall of each method", words, panels)
    image = f"![Certified recall of each method against the radius, one panel for each noise]({IMAGES}/{path.name})"
    places = [RADII.index(radius) for radius in _SHOWN_AT]
    rows = []
    for rule in rules:
        for method in _SHOWN:
            recall = cells(main.scores(rule, method), "recall")
            rows.append([f"{rule.k_prime}, {rule.k}", method, *(recall[place] for place in places)])
    table = markdown(["k', k", "method", *(f"R = {plain(radius)}" for radius in _SHOWN_AT)], rows, words=2)
    link = csv_link(docs, "methods", _HEADS, [row for one in sources for row in _every_score(one, rules)])
    return {"methods": f"{image}\n\n{table}\n\nEvery noise, score and radius: {link}."}


_HEADS = ("sigma", "n", "k'", "k", "method", "score", *RADIUS_HEADS)


def _every_score(source: Source, rules: Sequence[TopK]) -> list[list[str]]:
    return [
        [plain(source.sigma), str(source.draws), str(rule.k_prime), str(rule.k), method, WORDS[measure], *scores]
        for rule in rules
        for method in METHODS
        for measure in WORDS
        for scores in [cells(source.scores(rule, method), measure)]
    ]


def many_draws_block(source: Source, rules: Sequence[TopK], docs: Path) -> dict[str, str]:
    """Certified precision, recall and F1 of each method from all draws of one network, as a file."""
    link = csv_link(docs, "many-draws", _HEADS, _every_score(source, rules))
    return {"many-draws": f"Every method from all {source.draws:,} draws: {link}."}


def sizes_block(smaller: Source, sources: Sequence[Source]) -> dict[str, str]:
    """What networks of two input sizes certify against the same perturbation of the photo."""
    return {"sizes": "\n\n".join(_same_photo(smaller, one) for one in sources if one.sigma == 2 * smaller.sigma)}


def _same_photo(smaller: Source, larger: Source) -> str:
    """What both sizes certify against the same perturbation of the photo."""
    recall = [cells(one.scores(MAIN, "joint"), "recall") for one in (smaller, larger)]
    pairs = [(i, RADII.index(2 * radius)) for i, radius in enumerate(RADII) if 2 * radius in RADII]
    (here, there), values = (
        [", ".join(plain(RADII[pair[side]]) for pair in pairs) for side in (0, 1)],
        [", ".join(recall[side][pair[side]] for pair in pairs) for side in (0, 1)],
    )
    return (
        f"At R = {there} and {2 * _SMALLER} pixels, sigma = {plain(larger.sigma)} certifies {values[1]} % (`joint`). "
        f"At half of that, R = {here}, the same weights certify {values[0]} % at {_SMALLER} pixels and half the sigma."
    )


def tuned_block(pairs: Sequence[Pair], docs: Path) -> dict[str, str]:
    """Certified scores at k = 10 with the k', and the sigma, that other images choose for one radius."""
    choices = [Choice(k_primes(*pair), "recall", _TUNED_FOR) for pair in pairs]
    every = Choice([one for choice in choices for one in choice.candidates], "recall", _TUNED_FOR)
    heads = ["sigma", "tuned for", "k'", "method"]
    heads += [f"{word} at R = {plain(radius)}" for radius in _TUNED_FOR for word in WORDS.values()]
    link = csv_link(docs, "tuned", heads, [row for choice in choices for row in _tuned_rows(choice)])
    who = " or ".join(dict.fromkeys(choice.words() for choice in choices))
    recall = map(percent_value, every.scores(METHODS[0], "recall").tolist())
    best = zip(_TUNED_FOR, every.values("sigma"), every.values("k_prime"), recall, strict=True)
    both = [f"sigma = {sigma}, k' = {k_prime} for R = {plain(r)} ({share} %)" for r, sigma, k_prime, share in best]
    words = f"Chosen on {who}: {', '.join(both)}; in brackets the recall that `{METHODS[0]}` certifies."
    return {"tuned": f"{words} Every noise and method: {link}."}


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


def threshold_block(pairs: Sequence[Pair], docs: Path) -> dict[str, str]:
    """The threshold rule at the t, and the score threshold, of the largest certified F1 at each radius elsewhere."""
    choice = Choice(_thresholds(pairs), "f1")
    rows = [["t", "", *choice.values("t")], ["score threshold", "", *choice.values("score threshold")]]
    rows += _method_rows(choice, ("joint", "independent"))
    link = csv_link(docs, "threshold", ["method", "score", *RADIUS_HEADS], rows)
    best = " and ".join(
        f"{percent_value(float(choice.scores('joint', 'f1')[RADII.index(radius)]))} % at R = {plain(radius)}"
        for radius in _TUNED_FOR
    )
    return {"threshold": f"t was chosen on {choice.words()}; `joint` certifies F1 of {best}. All radii: {link}."}


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


def labels_block(source: Source) -> dict[str, str]:
    """What is certified of each label alone: means over labels, over images, and over images without a person."""
    names = source.label_names
    stays = [np.asarray(radii)[:, None] >= _LABELS_AT for radii in source.label_radii(MAIN)]
    each = [
        [row[list(true).index(i)] for true, row in zip(source.labels, stays, strict=True) if i in true]
        for i in range(source.num_labels)
    ]
    labels = np.array([np.mean(rows, axis=0) for rows in each if rows])
    images = source.scores(MAIN, "joint", radius=_LABELS_AT).recall
    without = [i for i, true in enumerate(source.labels) if "person" not in {names[label] for label in true}]
    rest = np.mean([stays[i].mean(axis=0) for i in without], axis=0)
    over = [
        (labels.mean(axis=0), f"{len(labels)} labels, each alone,"),
        (images, f"{len(source)} images"),
        (rest, f"{len(without)} images without a person, each label alone,"),
    ]
    said = "; ".join(f"over the {what} {', '.join(map(percent_value, values.tolist()))} %" for values, what in over)
    never = int(np.sum(labels[:, 1] == 0))
    return {
        "labels": f"Certified at R = {', '.join(map(plain, _LABELS_AT))}, as means: {said}. "
        f"{never} of the labels are never certified at R = 0.5."
    }
