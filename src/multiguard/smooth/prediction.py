"""What the smoothed classifier predicts for one image, and how much of it the draws have confirmed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Rule, certified_radii, label_radii


@dataclass(frozen=True)
class Prediction:
    """With probability at least 1 - alpha over the noise, all radii hold at once, those of labels and of the set.

    Attributes:
        labels: The labels that the pilot draws chose, most frequent first.
        radii: For each label an l2-radius within which it stays predicted; -inf if the fresh draws do not confirm it.
        set_radii: At least e of these labels stay predicted under any perturbation of l2-norm up to set_radii[e-1];
            non-increasing, never below the e-th largest of `radii`, -inf if not confirmed.
        other_radii: At most m labels beside `labels` are predicted under any perturbation of l2-norm up to
            other_radii[m]; non-decreasing, one for each m below the number of other labels. None for the top-k rule.
        seed: The seed of the noise; None if the votes came from elsewhere.

    >>> Prediction(labels=(4, 2), radii=(0.3, float("-inf")), set_radii=(0.3, float("-inf"))).confirmed
    (True, False)
    """

    labels: tuple[int, ...]
    radii: tuple[float, ...]
    set_radii: tuple[float, ...]
    other_radii: tuple[float, ...] | None = None
    seed: int | None = None

    @property
    def confirmed(self) -> tuple[bool, ...]:
        """For each label whether the fresh draws confirm it: its radius is at least 0."""
        return tuple(radius >= 0 for radius in self.radii)


def confirm_labels(
    labels: tuple[int, ...], votes: NDArray[Any], rule: Rule, *, num_labels: int, sigma: float, alpha: float
) -> Prediction:
    """The prediction with its radii: half of alpha for the labels, an equal part each, and half for the set.

    Each label is certified on its own against all others, the set jointly. All these claims hold at once, so where e
    labels stay up to their own radii, at least e of the set do: its radii are raised to that. One label alone makes the
    same claim as its set, so the set has all of alpha. `labels` must be chosen from other draws than `votes`; alpha is
    the probability of any false claim in the prediction.
    """
    options: dict[str, Any] = {"num_labels": num_labels, "sigma": sigma}
    several = len(labels) > 1
    together = certified_radii(votes, labels, rule, alpha=alpha / 2 if several else alpha, **options)
    single = together.true
    if several:
        single = label_radii(votes, labels, rule, alpha=alpha / 2 / len(labels), **options)
    raised = np.maximum(together.true, np.sort(single)[::-1])
    others = None if together.false is None else tuple(together.false.tolist())
    return Prediction(labels, tuple(single.tolist()), tuple(raised.tolist()), others)
