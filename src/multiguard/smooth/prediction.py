"""What the smoothed classifier says of one image, and how much of it the draws have confirmed."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import certified_radii


@dataclass(frozen=True)
class Prediction:
    """With probability at least 1 - alpha over the noise every radius here is right, of labels and set alike.

    Attributes:
        labels: The k labels that the pilot draws chose, most frequent first.
        radii: For each label an l2-radius within which it stays among the k predicted labels. -inf where the fresh
            draws cannot tell.
        set_radii: At least e of these k labels stay among the k predicted ones under any change of l2-norm up to
            set_radii[e-1]; non-increasing, -inf where the fresh draws cannot tell.
        confirmed: For each label whether its radius is at least 0. An unconfirmed label is a guess.
    """

    labels: tuple[int, ...]
    radii: tuple[float, ...]
    set_radii: tuple[float, ...]

    @property
    def confirmed(self) -> tuple[bool, ...]:
        """For each label whether the fresh draws confirm it."""
        return tuple(radius >= 0 for radius in self.radii)


def most_frequent(hits: NDArray[np.bool_], k: int) -> tuple[int, ...]:
    """The k labels with the most hits, most first; of equal counts the smaller index comes first."""
    counts = hits.sum(axis=0)
    return tuple(int(label) for label in np.argsort(-counts, kind="stable")[:k])


def confirm(
    labels: tuple[int, ...], hits: NDArray[np.bool_], *, k: int, k_prime: int, sigma: float, alpha: float
) -> Prediction:
    """The prediction with its radii: half of alpha for the labels, an equal part each, and half for the set.

    Each label is certified on its own against all others, the set jointly.

    Args:
        labels: The labels to confirm, chosen from draws other than these.
        hits: (draws, c), the fresh draws.
        k: The number of labels that g returns.
        k_prime: The number of labels that f returns.
        sigma: The noise.
        alpha: The probability of any false claim in the prediction.
    """
    joint = partial(certified_radii, hits, k=k, k_prime=k_prime, sigma=sigma, method="joint")
    single = [joint([label], alpha=alpha / 2 / len(labels)) for label in labels]
    together = joint(labels, alpha=alpha / 2)
    return Prediction(labels, tuple(float(radius[0]) for radius in single), tuple(together.tolist()))
