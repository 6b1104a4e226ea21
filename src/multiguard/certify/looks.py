"""Adaptive draws: looks at growing numbers of draws, fixed beforehand, and what the votes at all of them prove."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import check_count, checked_alpha, checked_hits, each_image
from multiguard.certify.bounds import ClopperPearson
from multiguard.certify.radii import certified_radii
from multiguard.certify.rules import Rule, Tallied, Threshold, TopK
from multiguard.certify.threshold import ThresholdRadii
from multiguard.certify.types import Floats, Method, ThresholdMethod
from multiguard.errors import InvalidInputError

# The plan that `look_plan` makes: it was chosen on half of the COCO images and judged on the other half.
_FIRST_LOOK = 50
_GROWTH = math.sqrt(2)
_LAST_FRACTION = 0.6


@dataclass(frozen=True)
class Looks:
    """The numbers of draws at which an image may be looked at, and what each look may spend of alpha.

    Fixed before any draw. An image may stop at any look, for any reason.

    Attributes:
        draws: n_1 < n_2 < ..., the draws taken in all at each look.
        shares: Of alpha, one for each look: positive, their sum at most 1.
    """

    draws: tuple[int, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.draws or len(self.draws) != len(self.shares):
            raise InvalidInputError(
                f"looks need one share of alpha each, at least one look: got {len(self.draws)} numbers of draws and "
                f"{len(self.shares)} shares"
            )
        for draws in self.draws:
            check_count("draws of a look", draws, None)
        if any(later <= earlier for earlier, later in zip(self.draws, self.draws[1:], strict=False)):
            raise InvalidInputError(f"the draws of the looks must grow from look to look, got {self.draws}")
        if not all(math.isfinite(share) and share > 0 for share in self.shares) or math.fsum(self.shares) > 1:
            raise InvalidInputError(
                f"shares of alpha must be positive and at most 1 together, or the promise is lost: {self.shares} sum "
                f"to {math.fsum(self.shares)}"
            )

    def index(self, draws: int) -> int:
        """Which look it is that has so many draws, counted from 0; raises if it is none."""
        if draws not in self.draws:
            raise InvalidInputError(
                f"{draws} draws are none of the looks {self.draws}: only votes that end at a look fixed beforehand "
                "have the promise of adaptive draws"
            )
        return self.draws.index(draws)

    def taken(self, draws: int) -> list[tuple[int, float]]:
        """(draws, share) of every look up to the one with so many draws; raises if it is none."""
        last = self.index(draws)
        return list(zip(self.draws, self.shares, strict=True))[: last + 1]


def look_plan(
    max_draws: int, *, first: int = _FIRST_LOOK, growth: float = _GROWTH, last_fraction: float = _LAST_FRACTION
) -> Looks:
    """Looks at `max_draws` and at ever fewer draws before, each `growth` times fewer, down to about `first`.

    The last look has most of alpha, the earlier ones share the rest equally: a bound depends on its level like a
    logarithm, so early looks are cheap, and the last is hardly weaker than a single one.

    Args:
        max_draws: The draws at the last look.
        first: No look has fewer draws, unless `max_draws` is smaller.
        growth: How many times the draws of a look those of the next one are, above 1.
        last_fraction: What the last look has of alpha; all of it where it is the only one.
    """
    check_count("max_draws", max_draws, None)
    check_count("first", first, None)
    if not 1 < growth < math.inf:
        raise InvalidInputError(f"growth is the ratio of the draws of two looks, above 1 and finite, got {growth!r}")
    if not 0 < last_fraction < 1:
        raise InvalidInputError(f"last_fraction is a part of alpha, strictly between 0 and 1, got {last_fraction!r}")
    before = {round(max_draws / growth**i) for i in range(1, 1 + math.ceil(math.log(max_draws) / math.log(growth)))}
    early = sorted(draws for draws in before if first <= draws < max_draws)
    if not early:
        return Looks((max_draws,), (1.0,))
    shares, last = [(1 - last_fraction) / len(early)] * len(early), last_fraction
    while math.fsum((*shares, last)) > 1:
        last = math.nextafter(last, 0.0)
    return Looks((*early, max_draws), (*shares, last))


def adaptive_radii(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    looks: Looks,
    k: int,
    k_prime: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> Floats:
    """The promise of `certified_radii`, whatever rule decided at which look to stop.

    With probability at least 1 - alpha over the draws the radii of every look hold, so the best of them do. (For `jia`
    each size alone, as in `certified_radii`.)

    Args:
        hits: As in `certified_radii`; the number of draws must be one of `looks.draws`.
        labels: As in `certified_radii`.
        looks: The looks, fixed before the draws.
        k: As in `certified_radii`.
        k_prime: As in `certified_radii`.
        sigma: As in `certified_radii`.
        alpha: As in `certified_radii`, for all looks together.
        method: As in `certified_radii`.
    """
    votes, alpha = checked_hits(hits), checked_alpha(alpha)
    found = [
        certified_radii(votes[:n], labels, k=k, k_prime=k_prime, sigma=sigma, alpha=alpha * share, method=method)
        for n, share in looks.taken(len(votes))
    ]
    best: Floats = np.maximum.reduce(found)
    return best


def adaptive_radii_batch(
    ranked: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    *,
    looks: Looks,
    num_labels: int,
    k: int,
    k_prime: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> list[Floats]:
    """For each image the promise of `adaptive_radii`, from ranked votes as `certified_radii_batch` takes them.

    The draws of each image must be one of `looks.draws`; images may have stopped at different looks.
    """
    rule = TopK.checked(num_labels, k, k_prime, sigma, alpha, method)
    return best_over_looks(rule, looks, tallies_at_looks(rule, looks, ranked, labels, "ranked"))


def adaptive_threshold_radii_batch(
    hits: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    *,
    looks: Looks,
    num_labels: int,
    threshold: float,
    sigma: float,
    alpha: float = 0.001,
    method: ThresholdMethod = "joint",
) -> list[ThresholdRadii]:
    """For each image the promise of `threshold_radii`, whatever rule decided at which look to stop.

    The draws of each image must be one of `looks.draws`; the other arguments are those of `threshold_radii_batch`.
    """
    rule = Threshold.checked(num_labels, threshold, sigma, alpha, method)
    tallies = tallies_at_looks(rule, looks, hits, labels, "hits")
    best = best_over_looks(rule, looks, tallies)
    num_true = [len(image[0].true.labels) for image in tallies]
    return [ThresholdRadii(row[:d], row[d:]) for row, d in zip(best, num_true, strict=True)]


def tallies_at_looks(
    rule: Rule[Tallied], looks: Looks, votes: Iterable[ArrayLike], labels: Iterable[ArrayLike], name: str
) -> list[list[Tallied]]:
    """For each image its tally at every look it has reached; its draws must end at a look."""

    def read(given: ArrayLike, true: ArrayLike) -> list[Tallied]:
        drawn = np.atleast_1d(given)
        return [rule.tally(drawn[:n], true) for n, _ in looks.taken(len(drawn))]

    return list(each_image(votes, labels, name, read))


def best_over_looks(rule: Rule[Tallied], looks: Looks, tallies: Sequence[Sequence[Tallied]]) -> list[Floats]:
    """For each image the best radii of the looks it has reached, each look with its own share of alpha."""
    best: dict[int, Floats] = {}
    for look, share in enumerate(looks.shares):
        reached = [i for i, image in enumerate(tallies) if len(image) > look]
        solved = rule.solve([tallies[i][look] for i in reached], share, ClopperPearson())
        for i, radii in zip(reached, solved, strict=True):
            best[i] = np.maximum(best[i], radii) if i in best else radii
    return [best[i] for i in range(len(tallies))]
