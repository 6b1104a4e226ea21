"""What the smoothed classifier predicts for one image, and how much of it the draws have confirmed."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Noise, Rule, certified_radii, label_radii
from multiguard.io.rounding import radius_text

_MOST_SHOWN = 8  # labels in a repr


@dataclass(frozen=True, repr=False)
class Prediction:
    """With probability at least 1 - alpha over the noise, all radii hold at once, those of labels and of the set.

    Attributes:
        labels: The indices of the labels that the pilot draws chose, most frequent first.
        radii: For each label a radius within which it stays predicted, -inf if the fresh draws do not confirm it. The
            noise says what a radius counts: with Gaussian noise the l2-norm of the perturbation.
        set_radii: At least e of these labels stay predicted under any perturbation up to set_radii[e-1];
            non-increasing, never below the e-th largest of `radii`, -inf if not confirmed.
        other_radii: At most m labels beside `labels` are predicted under any perturbation up to other_radii[m];
            non-decreasing, one for each m below the number of other labels. None for the top-k rule.
        names: The names of `labels`; empty if they are not known.
        noise_seed: The seed of the noise; None if the votes came from elsewhere.
        image_id: The id of the image, which keys the noise; None if the votes came from elsewhere.
        draws: The number of draws that certify.

    >>> Prediction(labels=(4, 2), radii=(0.3, float("-inf")), set_radii=(0.3, float("-inf"))).confirmed
    (True, False)
    """

    labels: tuple[int, ...]
    radii: tuple[float, ...]
    set_radii: tuple[float, ...]
    other_radii: tuple[float, ...] | None = None
    names: tuple[str, ...] = ()
    noise_seed: int | None = None
    image_id: str | None = None
    draws: int = 0

    @property
    def confirmed(self) -> tuple[bool, ...]:
        """For each label whether the fresh draws confirm it: its radius is at least 0."""
        return tuple(radius >= 0 for radius in self.radii)

    def __repr__(self) -> str:
        count, names = len(self.labels), self.names or self.labels
        lines = [f"  {name}: {_stays(radius)}" for name, radius in zip(names, self.radii, strict=True)]
        if count > _MOST_SHOWN:
            lines[_MOST_SHOWN:] = [f"  ... and {count - _MOST_SHOWN} more"]
        if count > 1:
            sizes = list(enumerate(self.set_radii, 1))
            lines += [f"  at least {e} of {count}: {_stays(radius)}" for e, radius in sizes[:_MOST_SHOWN]]
        head = f"Prediction of {count} label{'' if count == 1 else 's'}"
        return "\n".join([f"{head}, noise seed {self.noise_seed}{':' if lines else ''}", *lines])


def _stays(radius: float) -> str:
    return f"stays up to {radius_text(radius)}" if math.isfinite(radius) else radius_text(radius)


def confirm_labels(
    labels: tuple[int, ...],
    votes: NDArray[Any],
    rule: Rule,
    *,
    num_labels: int,
    noise: Noise,
    alpha: float,
    method: Method | None = None,
) -> Prediction:
    """The prediction with its radii: half of alpha for the labels, an equal part each, and half for the set.

    Each label is certified on its own against all others, the set jointly. All these claims hold at once, so where e
    labels stay up to their own radii, at least e of the set do: its radii are raised to that. One label alone makes the
    same claim as its set, so the set has all of alpha. `labels` must be chosen from other draws than `votes`; alpha is
    the probability of any false claim in the prediction. The method must be "betting" if `votes` decided their number;
    by default that of `certified_radii` proves the set and that of `label_radii` its labels.
    With "enumerated" nothing is random, and `labels` may be chosen from `votes`.
    """
    options: dict[str, Any] = {"num_labels": num_labels, "noise": noise, "method": method}
    (_, level), *alone = claim_levels(labels, alpha)
    together = certified_radii(votes, labels, rule, alpha=level, **options)
    single = together.true
    if alone:
        single = label_radii(votes, labels, rule, alpha=alone[0][1], **options)
    raised = np.maximum(together.true, np.sort(single)[::-1])
    others = None if together.false is None else tuple(together.false.tolist())
    return Prediction(labels, tuple(single.tolist()), tuple(raised.tolist()), others, draws=len(votes))


def claim_levels(labels: tuple[int, ...], alpha: float) -> list[tuple[tuple[int, ...], float]]:
    """The claims of a prediction: the set, then its labels alone where there are several, each with its alpha."""
    if len(labels) <= 1:
        return [(labels, alpha)]
    return [(labels, alpha / 2), *(((label,), alpha / 2 / len(labels)) for label in labels)]


def best_of(before: Prediction, after: Prediction) -> Prediction:
    """The larger of two radii of each claim; for predictions that hold at once, as betting's at any draws do."""
    radii = tuple(map(max, before.radii, after.radii))
    others = after.other_radii
    if before.other_radii is not None and others is not None:
        others = tuple(map(max, before.other_radii, others))
    together = tuple(map(max, before.set_radii, after.set_radii))
    return replace(before, radii=radii, set_radii=together, other_radii=others, draws=after.draws)
