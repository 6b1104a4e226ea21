"""Adaptive draws: an image stops at the first look after which more draws would not help."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from multiguard.certify import Looks, StoppingRule, ThresholdStoppingRule
from multiguard.smooth.asked import Asked, Passing, checked_asked
from multiguard.smooth.settings import Settings
from multiguard.votes import VoteRow


@dataclass(frozen=True)
class AdaptivePlan:
    """How many draws an image may take, and what more of them must promise; all of it fixed before any draw.

    Certificates of the votes hold for any k, k', t, alpha and radius, if alpha is split over these looks: what is
    asked here decides only where draws are spent.

    Attributes:
        looks: The numbers of draws at which an image may stop, and what each look may spend of alpha.
        radii: The radii at which more draws must be able to prove more.
        alpha: The error allowed, over all looks together.
        k: For the top-k rule, how many labels g returns.
        k_prime: For the top-k rule, how many labels f returns.
        threshold: For the threshold rule t, the probability at which g returns a label.
        forecast_margin: How many standard deviations better than so far the draws to come are taken to be, when
            deciding whether they could prove more; with `math.inf` an image stops only where they provably cannot.
    """

    looks: Looks
    radii: tuple[float, ...]
    alpha: float = 0.001
    k: int | None = None
    k_prime: int | None = None
    threshold: float | None = None
    forecast_margin: float = 2.0


class Stopping:
    """Says of images, after a look, whether their draws may end.

    Args:
        plan: What is asked.
        settings: How votes are made.
        num_labels: c, the number of labels there are.
        labelled: Whether rows carry the labels to protect; if not, their pilot draws choose them.
    """

    def __init__(self, plan: AdaptivePlan, settings: Settings, num_labels: int, *, labelled: bool) -> None:
        self._asked = checked_asked(settings, num_labels, k=plan.k, k_prime=plan.k_prime, threshold=plan.threshold)
        self._rule = _rule(plan, self._asked, settings.sigma, num_labels)
        self._num_labels, self._labelled = num_labels, labelled
        self.look_fractions = tuple(float(share) for share in plan.looks.shares)
        self.record = _record(plan, self._asked)

    def decided(self, rows: Sequence[VoteRow]) -> list[bool]:
        """For each image whether its draws may end."""
        labels = [self._protected(row) for row in rows]
        if isinstance(self._rule, ThresholdStoppingRule):
            return self._rule.decided([row.hits for row in rows], labels)
        return self._rule.decided([row.ranked for row in rows], labels)

    def _protected(self, row: VoteRow) -> tuple[int, ...]:
        if self._labelled:
            return row.labels
        assert row.pilot is not None
        return self._asked.choice(row.pilot, self._num_labels)


def _rule(plan: AdaptivePlan, asked: Asked, sigma: float, num_labels: int) -> StoppingRule | ThresholdStoppingRule:
    if isinstance(asked, Passing):
        return ThresholdStoppingRule(
            plan.looks,
            radii=plan.radii,
            num_labels=num_labels,
            threshold=asked.threshold,
            sigma=sigma,
            alpha=plan.alpha,
            forecast_margin=plan.forecast_margin,
        )
    return StoppingRule(
        plan.looks,
        radii=plan.radii,
        num_labels=num_labels,
        k=asked.k,
        k_prime=asked.k_prime,
        sigma=sigma,
        alpha=plan.alpha,
        forecast_margin=plan.forecast_margin,
    )


def _record(plan: AdaptivePlan, asked: Asked) -> dict[str, Any]:
    """What must agree for a run to resume, beside its looks; an infinite forecast margin is None in JSON."""
    forecast_margin = float(plan.forecast_margin) if math.isfinite(plan.forecast_margin) else None
    radii = tuple(float(radius) for radius in plan.radii)
    return {"radii": radii, "alpha": float(plan.alpha), "forecast_margin": forecast_margin, **asdict(asked)}
