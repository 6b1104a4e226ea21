"""Choosing the noise, k' or t on other images than those that are then certified."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.results.markdown_tables import RADII
from benchmarks.results.sources import MAIN, Source
from multiguard import evaluate
from multiguard.certify import Method, Rule, TopK
from multiguard.certify.arguments import Floats
from multiguard.io.rounding import plain


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

    def value(self, name: str) -> float:
        """The sigma or the score threshold of the votes, or a parameter of the rule."""
        if name == "score threshold":
            assert self.source.run is not None
            return self.source.run.provenance.score_threshold or 0.0
        return float(self.source.sigma if name == "sigma" else getattr(self.rule, name))


class Choice:
    """The candidate that certifies most at each radius on images that are then left out.

    If the candidates have votes on other images, those choose. Otherwise each of two random halves of the images
    chooses for the other half. The method joint chooses by the mean of `metric`.
    """

    def __init__(self, candidates: Sequence[Candidate], metric: str, radii: Sequence[float] = RADII) -> None:
        self.candidates, self.metric, self.radii = candidates, metric, radii
        self.apart = all(one.other for one in candidates)

    @property
    def folds(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The images that choose, and those that are certified with the choice."""
        images = len(self.candidates[0].source)
        if self.apart:
            return [(np.arange(len(self.candidates[0].chooser)), np.arange(images))]
        order = np.random.default_rng(0).permutation(images)
        one, other = np.sort(order[: images // 2]), np.sort(order[images // 2 :])
        return [(one, other), (other, one)]

    @cached_property
    def chosen(self) -> list[list[Candidate]]:
        """(folds, radii) the candidate of each."""
        points = [image_scores(one.chooser, one.rule, "joint", self.metric, self.radii) for one in self.candidates]
        means = np.array([[each[:, who].mean(axis=1) for each in points] for who, _ in self.folds])
        return [[self.candidates[i] for i in row] for row in means.argmax(axis=1).tolist()]

    def words(self) -> str:
        """Who chose."""
        return f"{len(self.candidates[0].chooser)} training images" if self.apart else "the other half of the images"

    def values(self, name: str) -> list[str]:
        """What was chosen at each radius: a value that candidates have."""
        found = [{one.value(name) for one in column} for column in zip(*self.chosen, strict=True)]
        return [", ".join(map(plain, sorted(column))) for column in found]

    def scores(self, method: Method, measure: str) -> Floats:
        """(radii,) the certified score on the images that did not choose, each radius with its own choice."""
        places = range(len(self.radii))
        return np.array([self.curve(method, measure, place, [self.radii[place]])[0] for place in places])

    def curve(self, method: Method, measure: str, place: int, radii: Sequence[float] = RADII) -> Floats:
        """(radii,) the same at any radii with what one of the radii has chosen."""
        values = np.empty((len(radii), len(self.candidates[0].source)))
        for row, (_, left) in zip(self.chosen, self.folds, strict=True):
            one = row[place]
            values[:, left] = image_scores(one.source, one.rule, method, measure, radii)[:, left]
        means: Floats = values.mean(axis=1)
        return means


def k_primes(source: Source, other: Source | None = None) -> list[Candidate]:
    """The k' to choose from at k = 10: all of them."""
    return [Candidate(source, TopK(MAIN.k, k_prime), other) for k_prime in range(1, min(MAIN.k, source.ranks) + 1)]


def image_scores(source: Source, rule: Rule, method: Method, measure: str, radii: Sequence[float]) -> Floats:
    """(radii, images) the score of each image."""
    each = zip(source.radii(rule, method), source.labels, strict=True)
    found = [evaluate.set_scores([one], rule, num_true=[len(true)], radius=radii) for one, true in each]
    return np.stack([getattr(scores, measure) for scores in found], axis=1)
