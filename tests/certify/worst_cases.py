"""Classifiers for which the coupled certificate is tight: nested events along one direction, a staircase.

The answer depends on one number s, uniform on [0, 1) at the image, and {W >= w_l} is {s < P_l}. The attack moves s so
that exactly down(P_l) of each event is left, so the mean of W there is C, and the claim is broken where C <= 0. With
Gaussian noise s is Phi(-t), t the projection of the noise on the attack. Where `down` takes the total variation D away,
s is uniform on [D, 1 + D) when attacked; uniform noise has s = (coordinate + b) / 2b.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
Hits = NDArray[np.bool_]
Moved = Callable[[Floats, float], Floats]


def gaussian(tails: Floats, by: float) -> Floats:
    """The probabilities after their scores have moved, down where `by` is negative."""
    return np.asarray(ndtr(ndtri(tails) + by))


def variation(tails: Floats, by: float) -> Floats:
    """The probabilities after all have moved, down where `by` is negative."""
    return np.clip(tails + by, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Staircase:
    """Answers from the worst W to the best, and how probable each is at the image.

    Attributes:
        answers: For each value of W the vote sets (sets, labels) that have it, equally probable.
        tails: (values - 1,) P_1 >= P_2 >= ..., the probabilities of {W >= w_1}, {W >= w_2}, ...
    """

    answers: tuple[Hits, ...]
    tails: Floats

    def at(self, rng: np.random.Generator, s: Floats) -> Hits:
        """(draws, labels) the answers at these s."""
        step = (s[:, None] < self.tails).sum(axis=1)
        return np.array([self.answers[i][rng.integers(len(self.answers[i]))] for i in step])

    def votes(self, rng: np.random.Generator, draws: int) -> Hits:
        """(draws, labels) independent draws at the image."""
        return self.at(rng, rng.random(draws))


def broken_at(
    far: float, answers: list[list[set[int]]], values: list[float], chances: list[float], labels: int, moved: Moved
) -> Staircase:
    """The staircase with about these chances, moved so that its mean of W at distance `far` is 0, or just below."""
    tails, gaps = np.cumsum(np.array(chances)[:0:-1])[::-1], np.diff(values)

    def mean(by: float) -> float:
        return float(values[0] + np.sum(gaps * moved(moved(tails, by), -far)))

    reach = 8.0 if moved is gaussian else 1.0
    rows = tuple(np.array([[label in one for label in range(labels)] for one in each]) for each in answers)
    return Staircase(rows, moved(tails, brentq(mean, -reach, reach, xtol=1e-14) - 1e-12))


def top_two_of_five(
    far: float, chances: tuple[float, ...] = (0.05, 0.1, 0.35, 0.5), moved: Moved = gaussian
) -> Staircase:
    """k' = 2, k = 2, L = {0}: label 0 against the pair 1, 2, all of which tie at that distance; 3 and 4 fill up."""
    answers = [[{1, 2}], [{1, 3}, {2, 4}, {1, 4}, {2, 3}], [{0, 1}, {0, 2}], [{0, 3}, {0, 4}]]
    return broken_at(far, answers, [-1.0, -0.5, 0.5, 1.0], list(chances), 5, moved)


def two_labels(far: float, moved: Moved = gaussian) -> Staircase:
    """k' = k = 1: two labels, equally probable at that distance."""
    return broken_at(far, [[{1}], [{0}]], [-1.0, 1.0], [0.3, 0.7], 2, moved)


def ranked_floor_of_two(far: float, t: float, moved: Moved = gaussian) -> Staircase:
    """The same as `floor_of_two` with two labels per draw."""
    answers = [[{2, 3}], [{0, 2}, {1, 3}], [{0, 1}]]
    return broken_at(far, answers, [-t, 0.5 - t, 1 - t], [0.1, 0.4, 0.5], 4, moved)


def ranked_ceiling_of_three(far: float, t: float, moved: Moved = gaussian) -> Staircase:
    """L = {0}, labels 1, 2 and 3 all in from that distance on, two labels per draw: W = t - H_{1, 2, 3} / 3."""
    answers = [[{1, 2}, {2, 3}, {1, 3}], [{0, 1}, {0, 2}, {0, 3}], [{0, 4}]]
    return broken_at(far, answers, [t - 2 / 3, t - 1 / 3, t], [0.1, 0.4, 0.5], 5, moved)


def floor_of_two(far: float, t: float, moved: Moved = gaussian) -> Staircase:
    """L = {0, 1}, both out of g_t from that distance on: W = H_L / 2 - t."""
    answers = [[{2}], [{0}, {1, 2}], [{0, 1}]]
    return broken_at(far, answers, [-t, 0.5 - t, 1 - t], [0.1, 0.4, 0.5], 3, moved)


def ceiling_of_two(far: float, t: float, moved: Moved = gaussian) -> Staircase:
    """L = {0}, labels 1 and 2 both in from that distance on: W = t - H_{1, 2} / 2."""
    answers = [[{0, 1, 2}], [{1}, {0, 2}], [{0}]]
    return broken_at(far, answers, [t - 1, t - 0.5, t], [0.1, 0.3, 0.6], 3, moved)
