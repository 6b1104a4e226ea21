"""What the smoothed classifier says of one image, and how much of it the draws have confirmed."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import certified_radii, hits_from_ranked, threshold_label_radii, threshold_radii
from multiguard.smooth.asked import Asked, Passing
from multiguard.votes import DrawVotes
from multiguard.votes.row import as_hits, as_ranked


@dataclass(frozen=True)
class Prediction:
    """With probability at least 1 - alpha over the noise every radius here is right, of labels and set alike.

    Attributes:
        labels: The labels that the pilot draws chose, most frequent first.
        radii: For each label an l2-radius within which it stays among the predicted labels. -inf where the fresh draws
            cannot tell.
        set_radii: At least e of these labels stay among the predicted ones under any change of l2-norm up to
            set_radii[e-1]; non-increasing, never below the e-th largest of `radii`, -inf where the fresh draws cannot
            tell.
        confirmed: For each label whether its radius is at least 0. An unconfirmed label is a guess.
    """

    labels: tuple[int, ...]
    radii: tuple[float, ...]
    set_radii: tuple[float, ...]

    @property
    def confirmed(self) -> tuple[bool, ...]:
        """For each label whether the fresh draws confirm it."""
        return tuple(radius >= 0 for radius in self.radii)


@dataclass(frozen=True)
class ThresholdPrediction(Prediction):
    """A prediction under the threshold rule, which may return any number of labels.

    Attributes:
        other_radii: At most m labels beside `labels` are predicted under any change of l2-norm up to other_radii[m];
            non-decreasing, one for each m below the number of other labels.
    """

    other_radii: tuple[float, ...]


def confirm(
    labels: tuple[int, ...], votes: DrawVotes, asked: Asked, num_labels: int, *, sigma: float, alpha: float
) -> Prediction:
    """The prediction with its radii: half of alpha for the labels, an equal part each, and half for the set.

    Each label is certified on its own against all others, the set jointly. All these claims hold at once, so where e
    labels stay up to their own radii, at least e of the set do: its radii are raised to that.

    Args:
        labels: The labels to confirm, chosen from draws other than these.
        votes: The fresh draws.
        asked: Which smoothed classifier is meant.
        num_labels: c, the number of labels there are.
        sigma: The noise.
        alpha: The probability of any false claim in the prediction.
    """
    if isinstance(asked, Passing):
        return _confirm_passing(labels, as_hits(votes), asked.threshold, sigma=sigma, alpha=alpha)
    hits = hits_from_ranked(as_ranked(votes), k_prime=asked.k_prime, num_labels=num_labels)
    joint = partial(certified_radii, hits, k=asked.k, k_prime=asked.k_prime, sigma=sigma, method="joint")
    single = [joint([label], alpha=alpha / 2 / len(labels)) for label in labels]
    radii = tuple(float(radius[0]) for radius in single)
    return Prediction(labels, radii, _raised(joint(labels, alpha=alpha / 2), radii))


def _confirm_passing(
    labels: tuple[int, ...], hits: NDArray[np.bool_], threshold: float, *, sigma: float, alpha: float
) -> ThresholdPrediction:
    share = alpha / 2 / max(1, len(labels))
    single = threshold_label_radii(hits, labels, threshold=threshold, sigma=sigma, alpha=share)
    together = threshold_radii(hits, labels, threshold=threshold, sigma=sigma, alpha=alpha / 2)
    radii = tuple(float(single[label]) for label in labels)
    return ThresholdPrediction(labels, radii, _raised(together.true, radii), tuple(together.false.tolist()))


def _raised(together: NDArray[np.float64], radii: tuple[float, ...]) -> tuple[float, ...]:
    """What is proved of the set: jointly, or by e of its labels alone, whichever reaches further."""
    return tuple(np.maximum(together, np.sort(radii)[::-1]).tolist())
