"""The corrected statistics against others on the same votes, and how often unsound ones are wrong."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADIUS_HEADS, cells, markdown
from benchmarks.results.sources import ALPHA, GRID, Source
from benchmarks.results.statistics import (
    PAPER,
    PUBLIC,
    claims_beyond,
    false_claim_chances,
    statistics,
    statistics_radii,
)
from multiguard.certify import TopK
from multiguard.io.rounding import plain, up_to_digits

_RIVALS = np.geomspace(1e-5, 0.49, 4000)


def statistics_block(source: Source, rules: Sequence[TopK], docs: Path) -> dict[str, str]:
    """Certified recall with each statistic, and how many labels are claimed that `paper` does not prove.

    Args:
        source: The votes.
        rules: The rule of each panel and part of the table.
        docs: The folder of the page.
    """
    panels, rows, losses = [], [], []
    for rule in rules:
        found = {name: statistics_radii(source, rule, name) for name in statistics(rule.k_prime)}
        scores = {name: source.average(radii, rule) for name, radii in found.items()}
        for name, radii in found.items():
            beyond = str(claims_beyond(radii, found[PAPER], 0.5))
            rows.append([f"{rule.k_prime}, {rule.k}", name, *cells(scores[name], "recall"), beyond])
        lines = [(name, 100 * each.recall) for name, each in scores.items()]
        panels.append(Panel(f"k′ = {rule.k_prime}, k = {rule.k}", "certified recall, %", GRID, lines))
        loss = 100 * (scores[PAPER].recall - scores[PUBLIC].recall)
        losses.append(f"{loss[20]:.1f} points at R = 0.5 and {loss[40]:.1f} at R = 1 at k' = {rule.k_prime}")
    words = f"{len(source)} images, n = {source.draws:,}, α = {plain(ALPHA)}, σ = {plain(source.sigma)}."
    path = curves_figure(docs / IMAGES, "statistics", "The same votes with different statistics", words, panels)
    heads = ["k', k", "statistics", *RADIUS_HEADS, "labels beyond `paper` at 0.5"]
    image = f"![Certified recall with different statistics]({IMAGES}/{path.name})"
    lost = f"On these votes the public code's statistics lose {', '.join(losses)}."
    return {"statistics": f"{image}\n\n{markdown(heads, rows, words=2)}\n\n{lost}"}


def wrong_claims_block(draws: int = 1000, alphas: tuple[float, ...] = (0.001, 0.05)) -> dict[str, str]:
    """The largest exact probability of a wrong certificate, over 4,000 half-spaces, with each statistic."""
    rows = []
    for name, solver in statistics(1).items():
        chances = [false_claim_chances(solver, draws=draws, alpha=alpha, rival=_RIVALS) for alpha in alphas]
        rows.append(
            [name, *(f"{up_to_digits(float(each.max()), 3)} at p = {_RIVALS[each.argmax()]:.2g}" for each in chances)]
        )
    return {"wrong-claims": markdown(["statistics", *(f"alpha = {plain(alpha)}" for alpha in alphas)], rows)}
