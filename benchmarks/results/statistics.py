"""What other statistics make of the same votes: the public code's, Theorem 1 without its cap, Eq. 5 as printed.

None of them belongs to the product: the public code's are sound but loose, the printed bound is not sound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from multiguard.certify.group import Group, Setting, batches
from multiguard.certify.types import Floats
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom

from multiguard.certify.bounds import Bounds, ClopperPearson
from multiguard.certify.joint import joint_radii
from multiguard.certify.layers import Layers, crossing, scaled
from multiguard.certify.radii import ranked_tally
from multiguard.certify.theorem1 import paper_radii
from multiguard.evaluate import Scores, set_scores

Solver = Callable[[Group, Setting], Floats]


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
    """Eq. 5 as printed: the upper bound is Beta(1 - level; n_j, n - n_j + 1), that of one hit less than were seen.

    Attributes:
        literally: Whether a label that was never hit has the upper bound 0, as Beta(.; 0, n + 1) would have it; if not,
            the right bound stands there, the kindest reading.
    """

    literally: bool

    def upper(self, mass: Floats, draws: Floats, level: Floats | float) -> Floats:
        """Not a bound: p is above it more often than `level` says."""
        found = super().upper(np.maximum(mass - 1, 0), draws, level)
        return np.where(mass == 0, 0.0, found) if self.literally else found


def uncapped_radii(group: Group, setting: Setting, bounds: Bounds) -> Floats:
    """The r, (images, sizes), of Theorem 1 without the cap k' - sum of the lower bounds over L."""
    level, draws = setting.alpha / group.num_labels, group.draws[:, None]
    lower = -np.sort(-bounds.lower(group.mass_on_labels, draws, level), axis=1)
    upper = bounds.upper(group.rivals(setting.k), draws, level)
    proved = []
    for e in group.uncertain_sizes(setting.k):
        left = _terms(lower[:, e - 1 :], setting.k_prime)
        right = _terms(upper[:, : setting.k - e + 1][:, ::-1], setting.k_prime)
        proved.append(_crossing(left, right))
    return group.with_certain_sizes(proved, setting.k)


def _terms(ordered: Floats, k_prime: int) -> Layers:
    """The first bound alone, and the sums of the first 1, 2, ... bounds, shared by k' layers."""
    sums = np.minimum(np.cumsum(ordered, axis=1) / k_prime, 1.0)
    weights = np.concatenate([[1.0], k_prime / np.arange(1, ordered.shape[1] + 1)])
    return Layers.of(np.concatenate([ordered[:, :1], sums], axis=1)[:, :, None], weights)


def _crossing(left: Layers, right: Layers) -> Floats:
    return crossing(lambda r: left.shifted(-r).max(axis=1), lambda r: right.shifted(r).min(axis=1), left.rows)


def statistics(k_prime: int) -> dict[str, Solver]:
    """Each way to count by its name in tables, the right ones first."""
    right = ClopperPearson()
    return {
        "joint": lambda group, setting: joint_radii(group, setting, right),
        "paper: n trials, with the cap": lambda group, setting: paper_radii(group, setting, right),
        "n trials, without the cap": lambda group, setting: uncapped_radii(group, setting, right),
        "public code: n k' trials, without the cap": lambda group, setting: uncapped_radii(
            group, setting, ManyTrials(k_prime)
        ),
        "Eq. 5 as printed (not sound)": lambda group, setting: paper_radii(group, setting, Printed(literally=True)),
        "Eq. 5 as printed, read kindly (not sound)": lambda group, setting: paper_radii(
            group, setting, Printed(literally=False)
        ),
    }


@dataclass(frozen=True, eq=False)
class Images:
    """Ranked votes (draws, K') and true labels of images that have some; c labels in all."""

    ranked: Sequence[NDArray[np.integer]]
    labels: Sequence[Sequence[int]]
    num_labels: int
    sigma: float

    def radii(self, setting: Setting, solver: Solver) -> list[Floats]:
        """Each image's radii."""
        tallies = [
            ranked_tally(votes, list(true), setting.k_prime, self.num_labels)
            for votes, true in zip(self.ranked, self.labels, strict=True)
        ]
        found: list[Floats] = [np.empty(0)] * len(tallies)
        for indices in batches(tallies, lambda _: 1 << 14):
            solved = solver(Group([tallies[i] for i in indices]), setting)
            for i, r in zip(indices, solved, strict=True):
                found[i] = scaled(r, self.sigma)
        return found

    def scores(self, setting: Setting, solver: Solver, radius: Floats) -> Scores:
        """Means over the images at these radii."""
        num_true = [len(true) for true in self.labels]
        return set_scores(self.radii(setting, solver), num_true=num_true, k=setting.k, radius=radius)


def claims_beyond(more: Sequence[Floats], right: Sequence[Floats], radius: float) -> int:
    """How many labels, over all images, are claimed at this radius that the right statistics do not prove."""
    return sum(int(np.sum((a >= radius) & ~(b >= radius))) for a, b in zip(more, right, strict=True))


def false_claim_chances(solver: Solver, *, draws: int, alpha: float, rival: Floats) -> Floats:
    """For each p_j the exact probability, over the draws, that the claimed radius is above the true one.

    The base classifier is a half-space, k' = k = 1: of two labels it returns the first or the second, the second with
    probability p_j. The true radius of the first label is then sigma Phi^-1(1 - p_j), and only the number of draws that
    return the second matters, which is binomial; every number of them is asked.

    Args:
        solver: The statistics.
        draws: n.
        alpha: What is promised.
        rival: The p_j to ask about, each below 1/2.
    """
    votes = [(np.arange(draws) < seen).astype(np.uint8)[:, None] for seen in range(draws + 1)]
    images = Images(votes, [[0]] * len(votes), 2, 1.0)
    claimed = np.array([radii[0] for radii in images.radii(Setting(1, 1, alpha), solver)])
    truth = -ndtri(rival)
    chances = binom.pmf(np.arange(draws + 1)[None, :], draws, rival[:, None])
    chance: Floats = np.where(claimed[None, :] > truth[:, None], chances, 0.0).sum(axis=1)
    return chance
