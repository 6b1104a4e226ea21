"""The corrected statistics against others on the same votes, and how often unsound ones are wrong."""

from pathlib import Path

import numpy as np

from benchmarks.results.drawing import Panel, curves_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, markdown, radius_index
from benchmarks.results.parts import IMAGES
from benchmarks.results.runs import Run
from benchmarks.results.statistics import Images, claims_beyond, false_claim_chances, statistics
from multiguard.certify import TopK
from multiguard.certify.radii import Radii
from multiguard.evaluate import set_scores
from multiguard.io.rounding import percent_value, plain, up_to_digits

_PAPER = "paper: n trials, with the cap"
_UNSOUND = "(not sound)"
_RIVALS = np.geomspace(1e-5, 0.49, 4000)


def statistics_block(run: Run, rules: list[TopK], docs: Path) -> dict[str, str]:
    """Certified recall with each statistic, and how many labels are claimed that `paper` does not prove.

    Args:
        run: The run whose votes are used.
        rules: The rule of each panel and part of the table.
        docs: The folder of the page.
    """
    images, radius = _images(run), run.study.main_curve("joint", "mean").scores.radius
    num_true, alpha = [len(true) for true in images.labels], run.study.config.alpha
    panels, rows = [], []
    for rule in rules:
        k, k_prime = rule.k, rule.k_prime
        found = {name: images.radii(rule, alpha, solver) for name, solver in statistics(k_prime).items()}
        lines = []
        for name, radii in found.items():
            recall = set_scores([Radii(r, None) for r in radii], rule, num_true=num_true, radius=radius).recall
            lines.append((name, 100 * recall))
            at = [float(recall[radius_index(radius, one)]) for one in RADII]
            rows.append(
                [f"{k_prime}, {k}", name, *map(percent_value, at), str(claims_beyond(radii, found[_PAPER], 0.5))]
            )
        panels.append(Panel(f"k′ = {k_prime}, k = {k}", "certified recall, %", radius, lines))
    words = f"{len(num_true)} images, n = {run.study.config.draws}, α = {plain(alpha)}, σ = {plain(images.sigma)}."
    path = curves_figure(docs / IMAGES, "statistics", "The same votes with different statistics", words, panels)
    heads = ["k', k", "statistics", *RADIUS_HEADS, "labels beyond `paper` at 0.5"]
    image = f"![Certified recall with different statistics]({IMAGES}/{path.name})"
    return {"statistics": f"{image}\n\n{markdown(heads, rows, words=2)}"}


def _images(run: Run) -> Images:
    votes, n = run.votes, run.study.config.draws
    kept = [i for i, true in enumerate(votes.labels) if len(true)]
    ranked = [np.asarray(votes.ranked(i))[:n] for i in kept]
    labels = [list(votes.labels[i]) for i in kept]
    return Images(ranked, labels, len(votes.provenance.label_names), votes.provenance.noise.sigma)


def wrong_claims_block(draws: int = 1000, alphas: tuple[float, ...] = (0.001, 0.05)) -> dict[str, str]:
    """The largest exact probability of a wrong certificate, over 4,000 half-spaces, with each statistic."""
    rows = []
    for name, solver in statistics(1).items():
        chances = [false_claim_chances(solver, draws=draws, alpha=alpha, rival=_RIVALS) for alpha in alphas]
        rows.append(
            [name, *(f"{up_to_digits(float(each.max()), 3)} at p = {_RIVALS[each.argmax()]:.2g}" for each in chances)]
        )
    return {"wrong-claims": markdown(["statistics", *(f"alpha = {plain(alpha)}" for alpha in alphas)], rows)}
