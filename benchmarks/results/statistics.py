"""Other statistics on the same votes: those of the public code, Theorem 1 without its cap, Eq. 10 as printed.

How much they lose, and how often the unsound ones are wrong. None of them is part of the product: those of the public
code are sound but loose, the printed bound is not sound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom

from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADIUS_HEADS, cells, csv_link, markdown
from benchmarks.results.sources import ALPHA, GRID, Source
from multiguard.certify import Radii
from multiguard.certify.arguments import Floats
from multiguard.certify.bounds import Bounds, ClopperPearson
from multiguard.certify.draws import Group, count_votes, equal_groups
from multiguard.certify.joint import joint_radii, paper_radii
from multiguard.certify.layers import GAUSSIAN_SHIFT, Layers, crossing, scale_radii
from multiguard.certify.rules import TopK
from multiguard.io.rounding import plain, up_to_digits

Solver = Callable[[Group, TopK, float], Floats]
PAPER, PUBLIC = "paper: n trials, with the cap", "public code: n k' trials, without the cap"
_BEYOND = "labels beyond `paper` at 0.5"
_RIVALS = np.geomspace(1e-5, 0.49, 4000)


@dataclass(frozen=True)
class ManyTrials:
    """Bounds from n k' trials, the sum of all counts: they bound p / k', and stand where bounds of p belong."""

    k_prime: int

    def lower(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """At most p / k', so at most p."""
        return ClopperPearson().lower(mass, draws * self.k_prime, level)

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """At least p / k'; less than p, but so is the left side that it is compared with."""
        return ClopperPearson().upper(mass, draws * self.k_prime, level)


@dataclass(frozen=True)
class Printed(ClopperPearson):
    """Eq. 10 as printed: the upper bound is Beta(1 - level; n_j, n - n_j + 1), that of one hit less than were seen.

    Attributes:
        literally: Whether a label that was never hit has the upper bound 0, as Beta(.; 0, n + 1) would have it; if not,
            the right bound stands there, the kindest reading.
    """

    literally: bool

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """Not a bound: p is above it more often than `level` says."""
        found = super().upper(np.maximum(mass - 1, 0), draws, level)
        return np.where(mass == 0, 0.0, found) if self.literally else found


def uncapped_radii(group: Group, rule: TopK, alpha: float, bounds: Bounds) -> Floats:
    """The r, (images, sizes), of Theorem 1 without the cap k' - sum of the lower bounds over L."""
    level, draws = alpha / group.num_labels, group.draws[:, None]
    lower = -np.sort(-bounds.lower(group.mass_on_labels, draws, level), axis=1)
    upper = bounds.upper(group.rivals(rule.k), draws, level)
    proved = []
    for e in group.uncertain_sizes(rule.k):
        left = _terms(lower[:, e - 1 :], rule.k_prime)
        right = _terms(upper[:, : rule.k - e + 1][:, ::-1], rule.k_prime)
        proved.append(_crossing(left, right))
    return group.with_certain_sizes(proved, rule.k)


def _terms(ordered: Floats, k_prime: int) -> Layers:
    """The first bound alone, and the sums of the first 1, 2, ... bounds, shared by k' layers."""
    sums = np.minimum(np.cumsum(ordered, axis=1) / k_prime, 1.0)
    weights = np.concatenate([[1.0], k_prime / np.arange(1, ordered.shape[1] + 1)])
    return Layers.of(np.concatenate([ordered[:, :1], sums], axis=1)[:, :, None], weights, GAUSSIAN_SHIFT)


def _crossing(left: Layers, right: Layers) -> Floats:
    return crossing(
        lambda r: left.moved(-r).max(axis=1), lambda r: right.moved(r).min(axis=1), left.rows, GAUSSIAN_SHIFT
    )


def statistics(k_prime: int) -> dict[str, Solver]:
    """Each statistic by its name in tables, the corrected ones first."""
    exact, many = ClopperPearson(), ManyTrials(k_prime)
    literal, kind = Printed(literally=True), Printed(literally=False)
    return {
        "joint": lambda group, rule, alpha: joint_radii(group, rule, alpha, exact),
        PAPER: lambda group, rule, alpha: paper_radii(group, rule, alpha, exact),
        "n trials, without the cap": lambda group, rule, alpha: uncapped_radii(group, rule, alpha, exact),
        PUBLIC: lambda group, rule, alpha: uncapped_radii(group, rule, alpha, many),
        "Eq. 10 as printed (not sound)": lambda group, rule, alpha: paper_radii(group, rule, alpha, literal),
        "Eq. 10 as printed, read kindly (not sound)": lambda group, rule, alpha: paper_radii(group, rule, alpha, kind),
    }


@dataclass(frozen=True, eq=False)
class Images:
    """Ranked votes (draws, K') and true labels of images that have some; c labels in all."""

    ranked: Sequence[NDArray[np.integer]]
    labels: Sequence[Sequence[int]]
    num_labels: int
    sigma: float

    def radii(self, rule: TopK, alpha: float, solver: Solver) -> list[Floats]:
        """The radii of each image."""
        counts = [
            count_votes(votes, list(true), rule, self.num_labels)
            for votes, true in zip(self.ranked, self.labels, strict=True)
        ]
        radii: dict[int, Floats] = {}
        for indices in equal_groups(counts, rule):
            solved = solver(Group([counts[i] for i in indices]), rule, alpha)
            radii |= {i: scale_radii(r, self.sigma) for i, r in zip(indices, solved, strict=True)}
        return [radii[i] for i in range(len(counts))]


def statistics_radii(source: Source, rule: TopK, name: str) -> list[Radii]:
    """The radii of each image with one of the statistics."""
    images = Images(source.votes, source.labels, source.num_labels, source.sigma)
    return [Radii(radii, None) for radii in images.radii(rule, ALPHA, statistics(rule.k_prime)[name])]


def claims_beyond(more: Sequence[Radii], right: Sequence[Radii], radius: float) -> int:
    """How many labels, over all images, are claimed at this radius that the right statistics do not prove."""
    return sum(int(np.sum((a.true >= radius) & ~(b.true >= radius))) for a, b in zip(more, right, strict=True))


def false_claim_chances(solver: Solver, *, draws: int, alpha: float, rival: Floats) -> Floats:
    """For each p_j the exact probability, over the draws, that the claimed radius is above the true one.

    The base classifier is a half-space, k' = k = 1: of two labels it returns the first or the second, the second with
    probability p_j. The true radius of the first label is then sigma Phi^-1(1 - p_j), and only the number of draws that
    return the second matters, which is binomial; so every number of them is evaluated.

    Args:
        solver: The statistics.
        draws: n.
        alpha: The error probability of the guarantee.
        rival: The p_j to evaluate, each below 1/2.
    """
    votes = [(np.arange(draws) < seen).astype(np.uint8)[:, None] for seen in range(draws + 1)]
    images = Images(votes, [[0]] * len(votes), 2, 1.0)
    claimed = np.array([radii[0] for radii in images.radii(TopK(k=1, k_prime=1), alpha, solver)])
    truth = -ndtri(rival)
    chances = binom.pmf(np.arange(draws + 1)[None, :], draws, rival[:, None])
    chance: Floats = np.where(claimed[None, :] > truth[:, None], chances, 0.0).sum(axis=1)
    return chance


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
    link = csv_link(docs, "statistics", ["k', k", "statistics", *RADIUS_HEADS, _BEYOND], rows)
    heads = [f"statistics, k', k = {rows[0][0]}", "R = 0.5", "R = 1", _BEYOND]
    shown = [[row[1], row[4], row[6], row[-1]] for row in rows if row[0] == rows[0][0]]
    image = f"![Certified recall with different statistics]({IMAGES}/{path.name})"
    lost = f"On these votes the public code's statistics lose {', '.join(losses)}."
    return {"statistics": f"{image}\n\n{markdown(heads, shown)}\n\n{lost} All radii: {link}."}


def wrong_claims_block(docs: Path, draws: int = 1000, alphas: tuple[float, ...] = (0.001, 0.05)) -> dict[str, str]:
    """The largest exact probability of a wrong certificate, over 4,000 half-spaces, with each statistic."""
    rows, said = [], []
    for name, solver in statistics(1).items():
        chances = [false_claim_chances(solver, draws=draws, alpha=alpha, rival=_RIVALS) for alpha in alphas]
        rows.append(
            [name, *(f"{up_to_digits(float(each.max()), 3)} at p = {_RIVALS[each.argmax()]:.2g}" for each in chances)]
        )
        said.append(up_to_digits(float(chances[0].max()), 3))
    link = csv_link(docs, "wrong-claims", ["statistics", *(f"alpha = {plain(alpha)}" for alpha in alphas)], rows)
    return {"wrong-claims": f"At alpha = {plain(alphas[0])}, in the order of the table: {', '.join(said)} ({link})."}
