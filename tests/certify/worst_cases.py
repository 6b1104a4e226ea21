"""Classifiers for which the coupled certificate is tight: nested half-spaces along one direction, a staircase.

With t ~ N(0, 1) the projection of the noise on the attack, {W >= w_l} is {t > -score_l}. Moving the image by r against
it leaves exactly down(Pr(W >= w_l)) of each event, so the mean of W there is C, and the claim is broken at r where
C <= 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
Hits = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Staircase:
    """Answers from the worst W to the best, and how probable each is at the image.

    Attributes:
        answers: For each value of W the vote sets (sets, labels) that have it, equally probable.
        scores: (values - 1,) the scores of {W >= w_1}, {W >= w_2}, ...
    """

    answers: tuple[Hits, ...]
    scores: Floats

    def votes(self, rng: np.random.Generator, draws: int) -> Hits:
        """(draws, labels) independent draws at the image."""
        step = np.searchsorted(-self.scores, rng.standard_normal(draws))
        return np.array([self.answers[i][rng.integers(len(self.answers[i]))] for i in step])


def broken_at(
    r: float, answers: list[list[set[int]]], values: list[float], chances: list[float], labels: int
) -> Staircase:
    """The staircase with about these chances, moved so that its mean of W at distance r is 0."""
    values_ = np.array(values)
    scores = ndtri(np.cumsum(np.array(chances)[:0:-1])[::-1])
    gaps = np.diff(values_)

    def mean(shift: float) -> float:
        return float(values_[0] + np.sum(gaps * ndtr(scores + shift - r)))

    moved = scores + brentq(mean, -8, 8, xtol=1e-13)
    rows = tuple(np.array([[label in one for label in range(labels)] for one in each]) for each in answers)
    return Staircase(rows, moved)


def top_two_of_five(r: float, chances: tuple[float, ...] = (0.05, 0.1, 0.35, 0.5)) -> Staircase:
    """k' = 2, k = 2, L = {0}: label 0 against the pair 1, 2, all of which tie at distance r; 3 and 4 fill up."""
    answers = [[{1, 2}], [{1, 3}, {2, 4}, {1, 4}, {2, 3}], [{0, 1}, {0, 2}], [{0, 3}, {0, 4}]]
    return broken_at(r, answers, [-1.0, -0.5, 0.5, 1.0], list(chances), labels=5)


def two_labels(r: float) -> Staircase:
    """k' = k = 1: two labels on the two sides of a hyperplane, equally probable at distance r."""
    return broken_at(r, [[{1}], [{0}]], [-1.0, 1.0], [0.3, 0.7], labels=2)


def floor_of_two(r: float, t: float) -> Staircase:
    """L = {0, 1}, both out of g_t from distance r on: W = H_L / 2 - t."""
    return broken_at(r, [[{2}], [{0}, {1, 2}], [{0, 1}]], [-t, 0.5 - t, 1 - t], [0.1, 0.4, 0.5], labels=3)


def ceiling_of_two(r: float, t: float) -> Staircase:
    """L = {0}, labels 1 and 2 both in from distance r on: W = t - H_{1, 2} / 2."""
    return broken_at(r, [[{0, 1, 2}], [{1}, {0, 2}], [{0}]], [t - 1, t - 0.5, t], [0.1, 0.3, 0.6], labels=3)
