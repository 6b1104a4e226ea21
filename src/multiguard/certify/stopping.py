"""When to stop drawing: nothing more to gain at the radii that were asked for."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import checked_forecast_margin, checked_radii, each_image
from multiguard.certify.bounds import ClopperPearson, Projected
from multiguard.certify.looks import Looks, best_over_looks, tallies_at_looks
from multiguard.certify.rules import Rule, Tallied, Threshold, TopK
from multiguard.certify.types import Floats, Method, ThresholdMethod

# On real votes forecasts of this forecast_margin lost a tenth of a point at most; half of it now and then half a point.
_FORECAST_MARGIN = 2.0


class StoppingRule:
    """Says of images, after each of their looks, whether more draws can be expected to raise their certified size.

    An image is decided when its certified size is at its maximum at every radius asked for; when a kind forecast of
    the votes at the looks to come would certify no more at any of them; or when no look is left. The radii of
    `adaptive_radii` hold whatever this rule says.

    Args:
        looks: The looks, fixed before the draws.
        radii: The radii asked for, in the unit of sigma.
        num_labels: c, the number of labels there are.
        k: As in `certified_radii`.
        k_prime: As in `certified_radii`.
        sigma: As in `certified_radii`.
        alpha: As in `certified_radii`, for all looks together.
        method: As in `certified_radii`.
        forecast_margin: How many standard deviations better than so far the draws to come are taken to be. With
            `math.inf` an image stops only where its certified size provably cannot rise any more.
    """

    def __init__(
        self,
        looks: Looks,
        *,
        radii: Sequence[float],
        num_labels: int,
        k: int,
        k_prime: int,
        sigma: float,
        alpha: float = 0.001,
        method: Method = "joint",
        forecast_margin: float = _FORECAST_MARGIN,
    ) -> None:
        rule = TopK.checked(num_labels, k, k_prime, sigma, alpha, method)
        self.looks = looks
        self._outlook = _Outlook(rule, looks, checked_radii(radii), checked_forecast_margin(forecast_margin))

    def decided(self, ranked: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> list[bool]:
        """For each image whether its draws may end; the draws of each must be one of `looks.draws`.

        Args:
            ranked: For each image all its votes so far, (draws, K') as `certified_radii_batch` takes them.
            labels: For each image the indices of L. One without labels is decided at once.
        """
        return self._outlook.decided(ranked, labels, "ranked")


class ThresholdStoppingRule:
    """Says of images under the threshold rule whether more draws can be expected to raise a floor or lower a ceiling.

    As `StoppingRule`, with the arguments of `threshold_radii` in place of those of `certified_radii`.
    """

    def __init__(
        self,
        looks: Looks,
        *,
        radii: Sequence[float],
        num_labels: int,
        threshold: float,
        sigma: float,
        alpha: float = 0.001,
        method: ThresholdMethod = "joint",
        forecast_margin: float = _FORECAST_MARGIN,
    ) -> None:
        rule = Threshold.checked(num_labels, threshold, sigma, alpha, method)
        self.looks = looks
        self._outlook = _Outlook(rule, looks, checked_radii(radii), checked_forecast_margin(forecast_margin))

    def decided(self, hits: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> list[bool]:
        """For each image whether its draws may end; the draws of each must be one of `looks.draws`.

        Args:
            hits: For each image all its votes so far, boolean (draws, num_labels).
            labels: For each image the indices of L.
        """
        return self._outlook.decided(hits, labels, "hits")


@dataclass(frozen=True, eq=False)
class _Image(Generic[Tallied]):
    """An image at its latest look: which one, the tally of its votes, their name, and what earlier looks proved."""

    look: int
    tally: Tallied
    name: bytes
    before: Floats | None


class _Outlook(Generic[Tallied]):
    """What each image has at the radii asked for, and what it can hope for.

    What an image had at a look is remembered until its next one, so that no look is solved twice.
    """

    def __init__(self, rule: Rule[Tallied], looks: Looks, asked: Floats, forecast_margin: float) -> None:
        self.rule, self.looks, self.asked, self.forecast_margin = rule.only_at(asked), looks, asked, forecast_margin
        # A later look with at least as large a share has a forecast at least as good.
        shares = looks.shares
        self.worthwhile = [i for i, share in enumerate(shares) if all(share > later for later in shares[i + 1 :])]
        self._had: dict[bytes, Floats] = {}

    def decided(self, votes: Sequence[ArrayLike], labels: Sequence[ArrayLike], name: str) -> list[bool]:
        images = list(each_image(votes, labels, name, self._latest))
        best = self._best(images)
        open_ones = [i for i, radii in enumerate(best) if np.any(radii < self.asked.max())]
        rising: set[int] = set()
        for look in self.worthwhile:
            rising |= self._rising([i for i in open_ones if images[i].look < look], look, images, best)
        self._had |= {images[i].name: best[i] for i in rising}
        return [i not in rising for i in range(len(best))]

    def _latest(self, given: ArrayLike, true: ArrayLike) -> _Image[Tallied]:
        """An image's latest look; what the earlier ones proved is remembered, or else proved again."""
        votes = np.atleast_1d(given)
        look = self.looks.index(len(votes))
        tally, before = self.rule.tally(votes, true), None
        if look > 0:
            earlier = votes[: self.looks.draws[look - 1]]
            before = self._had.pop(_name(earlier, true), None)
            if before is None:
                before = best_over_looks(
                    self.rule, self.looks, tallies_at_looks(self.rule, self.looks, [earlier], [true], "votes")
                )[0]
        return _Image(look, tally, _name(votes, true), before)

    def _best(self, images: Sequence[_Image[Tallied]]) -> list[Floats]:
        """For each image the best radii of the looks it has reached."""
        best: dict[int, Floats] = {}
        for look in sorted({image.look for image in images}):
            here = [i for i, image in enumerate(images) if image.look == look]
            solved = self.rule.solve([images[i].tally for i in here], self.looks.shares[look], ClopperPearson())
            for i, radii in zip(here, solved, strict=True):
                before = images[i].before
                best[i] = radii if before is None else np.maximum(before, radii)
        return [best[i] for i in range(len(images))]

    def _rising(
        self, among: Sequence[int], look: int, images: Sequence[_Image[Tallied]], best: Sequence[Floats]
    ) -> set[int]:
        """Those images for which the forecast at this look certifies more, at some radius asked for."""
        forecast = Projected(self.looks.draws[look], self.forecast_margin)
        hopes = self.rule.solve([images[i].tally for i in among], self.looks.shares[look], forecast)
        return {i for i, hope in zip(among, hopes, strict=True) if np.any(hope > best[i])}


def _name(votes: NDArray[Any], labels: ArrayLike) -> bytes:
    """What tells these votes and labels from any others."""
    told = hashlib.sha256(f"{votes.dtype} {votes.shape} {np.sort(np.asarray(labels)).tolist()}".encode())
    told.update(np.ascontiguousarray(votes).data)
    return told.digest()
