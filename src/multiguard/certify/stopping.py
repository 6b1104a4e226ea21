"""When to stop drawing: nothing more to gain at the requested radii."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import check_forecast_margin, check_radii, each_image
from multiguard.certify.arrays import Floats
from multiguard.certify.bounds import Bounds, ClopperPearson, Projected
from multiguard.certify.counts import VoteCounts, count_votes
from multiguard.certify.looks import Looks
from multiguard.certify.radii import best_over_looks, check_no_looks, check_options, counts_at_looks, solve
from multiguard.certify.rules import Method, Rule

# On real votes forecasts of this margin lost a tenth of a point at most; half of it now and then half a point.
_FORECAST_MARGIN = 2.0


@dataclass(frozen=True, eq=False)
class _Image:
    """An image at its latest look: which look, the counts of its votes, their digest, and what earlier looks proved."""

    look: int
    counts: VoteCounts
    digest: bytes
    before: Floats | None


class StoppingRule:
    """Says of images, after each look, whether more draws can be expected to raise a certified size.

    (For `Threshold`: to raise a floor or lower a ceiling.) An image is decided when everything is proved at every
    requested radius; when a favourable forecast of the votes at the looks to come would prove no more at any of them;
    or when no look is left. The radii of `certified_radii` with these looks hold whatever this rule says.

    Args:
        rule: The smoothed classifier.
        looks: The looks, fixed before the draws.
        radii: The requested radii, in the unit of sigma.
        num_labels: c, the number of labels there are.
        sigma: As in `certified_radii`.
        alpha: As in `certified_radii`, for all looks together.
        method: As in `certified_radii`.
        forecast_margin: How many standard deviations better than so far the draws to come are taken to be. With
            `math.inf` an image stops only where its certified size provably cannot rise any more.

    >>> from multiguard.certify import TopK, look_plan
    >>> looks = look_plan(1000)  # the first look is at 62 draws
    >>> stopping = StoppingRule(TopK(k=1, k_prime=1), looks, radii=[0.5], num_labels=3, sigma=0.5)
    >>> clear, likely, hopeless = [[0]] * 62, [[0]] * 50 + [[1]] * 12, [[0]] * 31 + [[1]] * 31
    >>> stopping.decided([clear, likely, hopeless], [[0], [0], [0]])
    [True, False, True]
    """

    def __init__(
        self,
        rule: Rule,
        looks: Looks,
        *,
        radii: Sequence[float],
        num_labels: int,
        sigma: float,
        alpha: float = 0.001,
        method: Method = "joint",
        forecast_margin: float = _FORECAST_MARGIN,
    ) -> None:
        self.rule, self.looks, self._num_labels = rule, looks, num_labels
        self._sigma, self._alpha, self._method = check_options(rule, num_labels, sigma, alpha, method)
        if method == "betting":
            check_no_looks(looks)
        self._radii, self._forecast_margin = check_radii(radii), check_forecast_margin(forecast_margin)
        # In units of sigma, and so little larger that they are not below the radii when scaled and rounded down.
        self._at = tuple(float(r) for r in self._radii / self._sigma * (1 + 1e-12))
        # A later look with at least as large a fraction has a forecast at least as good.
        fractions = looks.fractions
        self._worthwhile = [i for i, one in enumerate(fractions) if all(one > later for later in fractions[i + 1 :])]
        self._proved: dict[bytes, Floats] = {}  # at a look, kept until the next one, so that no look is solved twice

    def decided(self, votes: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> list[bool]:
        """For each image whether its draws may end; the draws of each must be one of `looks.draws`.

        Args:
            votes: For each image all its votes so far, as `certified_radii_batch` takes them.
            labels: For each image the indices of L. Under `TopK` one without labels is decided at once.
        """
        images = list(each_image(votes, labels, self._latest))
        best = self._best(images)
        undecided = [i for i, radii in enumerate(best) if np.any(radii < self._radii.max())]
        rising: set[int] = set()
        for look in self._worthwhile:
            rising |= self._rising([i for i in undecided if images[i].look < look], look, images, best)
        self._proved |= {images[i].digest: best[i] for i in rising}
        return [i not in rising for i in range(len(best))]

    def _latest(self, given: ArrayLike, labels: ArrayLike) -> _Image:
        """An image at its latest look; what the earlier ones proved is remembered, or else proved again."""
        votes = np.atleast_1d(given)
        look, before = self.looks.index(len(votes)), None
        counts = count_votes(votes, labels, self.rule, self._num_labels)
        if look > 0:
            earlier = votes[: self.looks.draws[look - 1]]
            before = self._proved.pop(_digest(earlier, labels), None)
            if before is None:
                before = self._prove_again(earlier, labels)
        return _Image(look, counts, _digest(votes, labels), before)

    def _prove_again(self, votes: NDArray[Any], labels: ArrayLike) -> Floats:
        counts = counts_at_looks(votes, labels, self.rule, self._num_labels, self.looks)
        options = (self._sigma, self._alpha, self._method, self._at)
        return best_over_looks([counts], self.rule, self.looks, *options)[0].row

    def _best(self, images: Sequence[_Image]) -> list[Floats]:
        """For each image the best radii of the looks that it has reached."""
        best: dict[int, Floats] = {}
        for look in sorted({image.look for image in images}):
            here = [i for i, image in enumerate(images) if image.look == look]
            for i, radii in zip(here, self._solve([images[i] for i in here], look, ClopperPearson()), strict=True):
                before = images[i].before
                best[i] = radii if before is None else np.maximum(before, radii)
        return [best[i] for i in range(len(images))]

    def _rising(self, among: Sequence[int], look: int, images: Sequence[_Image], best: Sequence[Floats]) -> set[int]:
        """Those images for which the forecast at this look proves more, at some requested radius."""
        forecast = Projected(self.looks.draws[look], self._forecast_margin)
        hopes = self._solve([images[i] for i in among], look, forecast)
        return {i for i, hope in zip(among, hopes, strict=True) if np.any(hope > best[i])}

    def _solve(self, images: Sequence[_Image], look: int, bounds: Bounds) -> list[Floats]:
        """Every radius of each image, proved with this look's fraction of alpha."""
        alpha = self._alpha * self.looks.fractions[look]
        counts = [image.counts for image in images]
        solved = solve(counts, self.rule, bounds, self._sigma, alpha, self._method, self._at)
        return [radii.row for radii in solved]


def _digest(votes: NDArray[Any], labels: ArrayLike) -> bytes:
    """What tells these votes and labels from any others."""
    digest = hashlib.sha256(f"{votes.dtype} {votes.shape} {np.sort(np.asarray(labels)).tolist()}".encode())
    digest.update(np.ascontiguousarray(votes).data)
    return digest.digest()
