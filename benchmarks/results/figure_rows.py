"""The rows of the paper's figures on our votes: a figure and a file each; `reproduction` has what they mean."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, WORDS, cells, csv_link, radius_index
from benchmarks.results.sources import ALPHA, GRID, MAIN, Source
from multiguard.certify import Method, TopK
from multiguard.certify.arguments import Floats
from multiguard.evaluate import Scores
from multiguard.io.rounding import plain

METHOD = "joint"
Lines = Sequence[tuple[str, Scores]]
_LEAST = 5e-5  # differences below this are ties


def k_prime_row(source: Source, docs: Path) -> dict[str, str]:
    """Several k'."""
    values = [k_prime for k_prime in (1, 2, 3, 5, 7, 10) if k_prime <= source.ranks]
    lines = [(str(value), source.scores(TopK(MAIN.k, value), METHOD)) for value in values]
    return _row("k_prime", "k'", lines, "Impact of k'", source, docs)


def k_row(source: Source, docs: Path) -> dict[str, str]:
    """Several k."""
    lines = [(str(k), source.scores(TopK(k, MAIN.k_prime), METHOD)) for k in (1, 3, 5, 8, 10, 20)]
    return _row("k", "k", lines, "Impact of k", source, docs)


def sigma_row(sources: Sequence[Source], docs: Path) -> dict[str, str]:
    """One network at each sigma."""
    lines = [(plain(one.sigma), one.scores(MAIN, METHOD)) for one in sources]
    return _row("sigma", "sigma", lines, "Impact of sigma", sources[0], docs)


def n_row(source: Source, docs: Path) -> dict[str, str]:
    """The first n draws of the same images."""
    values = [*(n for n in (100, 250, 500, 1000, 2000, 5000) if n < source.draws), source.draws]
    lines = [(f"{n:,}", source.scores(MAIN, METHOD, n)) for n in values]
    return _row("n", "n", lines, "Impact of n", source, docs)


def alpha_row(source: Source, docs: Path) -> dict[str, str]:
    """Several alpha."""
    values = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    lines = [(plain(alpha), source.scores(MAIN, METHOD, alpha=alpha)) for alpha in values]
    return _row("alpha", "alpha", lines, "Impact of alpha", source, docs)


def training_row(source: Source, clean: Source, docs: Path) -> dict[str, str]:
    """Two networks that were trained alike, with noise and without."""
    lines = [("with noise", source.scores(MAIN, METHOD)), ("without noise", clean.scores(MAIN, METHOD))]
    return _row("training", "training", lines, "Training with and without noise", clean, docs)


def jia_row(source: Source, rules: Sequence[TopK], methods: Sequence[Method], docs: Path) -> dict[str, str]:
    """Points of certified recall of each method over certifying each label alone, after Jia et al."""
    rows = []
    for rule in rules:
        jia = source.scores(rule, "jia").recall
        for method in methods:
            gain = 100 * (source.scores(rule, method).recall - jia)
            ahead, behind = int(np.sum(gain > 100 * _LEAST)), int(np.sum(gain < -100 * _LEAST))
            rows.append([f"{rule.k_prime}, {rule.k}", method, *_gain(gain), str(ahead), str(behind)])
    heads = ["k', k", "method", *RADIUS_HEADS, "least", "most", "ahead", "behind"]
    link = csv_link(docs, "row-jia", heads, rows)
    return {"row-jia": f"Points of recall over Jia et al., every method and radius: {link}."}


def _gain(gain: Floats) -> list[str]:
    """In points, to two decimals: a difference of certified numbers, itself not certified."""
    at = [f"{gain[radius_index(GRID, one)]:+.2f}" for one in RADII]
    return [*at, f"{gain.min():+.2f}", f"{gain.max():+.2f}"]


def _row(
    name: str,
    what: str,
    lines: Lines,
    title: str,
    source: Source,
    docs: Path,
) -> dict[str, str]:
    panels = [
        Panel(
            WORDS[measure],
            f"certified {WORDS[measure]}, %",
            GRID,
            [(f"{what} = {n}" if what != "training" else n, 100 * getattr(s, measure)) for n, s in lines],
        )
        for measure in WORDS
    ]
    given = f"k′ = {MAIN.k_prime}, k = {MAIN.k}, σ = {plain(source.sigma)}, n = {source.draws:,}, α = {plain(ALPHA)}"
    subtitle = f"Votes {source.name}: {len(source)} images, method {METHOD}; where they are not varied: {given}."
    path = curves_figure(docs / IMAGES, name, title, subtitle, panels)
    image = f"![{title}: certified precision, recall and F1 against the radius]({IMAGES}/{path.name})"
    return {f"row-{name}": f"{image}\n\n{_table(docs, name, what, lines)}"}


def _table(docs: Path, name: str, what: str, lines: Lines) -> str:
    rows = [[line, WORDS[measure], *cells(scores, measure)] for line, scores in lines for measure in WORDS]
    return f"All scores: {csv_link(docs, f'row-{name}', [what, 'score', *RADIUS_HEADS], rows)}."
