"""Choosing the noise, k' or t on other images than those that are then certified."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.results.markdown_tables import RADII
from benchmarks.results.sources import MAIN, Source
from multiguard import evaluate
from multiguard.certify import Method, Rule, TopK
from multiguard.certify.arrays import Floats
from multiguard.io.rounding import plain

_HALVES = 200
_K_PRIMES = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class Candidate:
    """A rule for the votes of one network; `other` are its votes on other images, if there are any."""

    source: Source
    rule: Rule
    other: Source | None = None

    @property
    def chooser(self) -> Source:
        """The votes that choose."""
        return self.other or self.source


class Choice:
    """The candidate that certifies most at each radius on images that are then left out.

    If the candidates have votes on other images, those choose. Otherwise random halves of the images choose for the
    other halves, and scores are means over the halves. The method joint chooses, by the mean of `metric`.
    """

    def __init__(self, candidates: Sequence[Candidate], metric: str, radii: Sequence[float] = RADII) -> None:
        self.candidates, self.radii, self.apart = candidates, radii, all(one.other for one in candidates)
        self._points = [image_scores(one.chooser, one.rule, "joint", metric, radii) for one in candidates]
        images = len(candidates[0].chooser)
        self.halves = [np.arange(images)] if self.apart else _halves(images)

    def chosen(self) -> list[list[Candidate]]:
        """(halves, radii) the candidate of each."""
        means = np.array([[points[:, half].mean(axis=1) for points in self._points] for half in self.halves])
        return [[self.candidates[i] for i in row] for row in means.argmax(axis=1).tolist()]

    def words(self) -> str:
        """Who chose."""
        if self.apart:
            return f"{len(self.candidates[0].chooser)} training images"
        return f"halves of the images, mean of {_HALVES}"

    def values(self, name: str) -> list[str]:
        """A parameter of the rule, or sigma, of what was chosen at each radius: the least and the most."""
        found = [
            [one.source.sigma if name == "sigma" else getattr(one.rule, name) for one in column]
            for column in zip(*self.chosen(), strict=True)
        ]
        ends = [(min(column), max(column)) for column in found]
        return [plain(low) if low == high else f"{plain(low)} to {plain(high)}" for low, high in ends]

    def scores(self, method: Method, measure: str) -> Floats:
        """(radii,) the certified score on the images that did not choose."""
        chosen, images = self.chosen(), len(self.candidates[0].source)
        points = {
            one: image_scores(one.source, one.rule, method, measure, self.radii)
            for one in {one for row in chosen for one in row}
        }
        left = [np.arange(images)] if self.apart else [np.setdiff1d(np.arange(images), half) for half in self.halves]
        found = [
            [points[one][place, rest].mean() for place, one in enumerate(row)]
            for row, rest in zip(chosen, left, strict=True)
        ]
        values: Floats = np.mean(found, axis=0)
        return values


def k_primes(source: Source, other: Source | None = None) -> list[Candidate]:
    """The k' to choose from at k = 10."""
    return [Candidate(source, TopK(MAIN.k, k_prime), other) for k_prime in _K_PRIMES if k_prime <= source.ranks]


def image_scores(source: Source, rule: Rule, method: Method, measure: str, radii: Sequence[float]) -> Floats:
    """(radii, images) the score of each image."""
    each = zip(source.radii(rule, method), source.labels, strict=True)
    found = [evaluate.image_scores(one, rule, num_true=len(true), radius=radii) for one, true in each]
    return np.stack([getattr(scores, measure) for scores in found], axis=1)


def _halves(images: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.sort(rng.permutation(images)[: images // 2]) for _ in range(_HALVES)]
