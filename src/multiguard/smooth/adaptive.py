"""Adaptive draws: an image stops at the first look after which more draws would not help."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from multiguard.certify import Looks, Rule, StoppingRule
from multiguard.smooth.prediction import as_array
from multiguard.smooth.settings import Settings
from multiguard.votes import VoteRow


@dataclass(frozen=True)
class AdaptivePlan:
    """How many draws an image may take, and what more of them must promise; all of it fixed before any draw.

    Certificates of the votes hold for any rule, alpha and radius, if alpha is split over these looks: this plan decides
    only where draws are spent.

    Attributes:
        rule: The smoothed classifier.
        looks: The numbers of draws at which an image may stop, and what each look may spend of alpha.
        radii: The radii at which more draws must be able to prove more.
        alpha: The error allowed, over all looks together.
        forecast_margin: How many standard deviations better than so far the draws to come are taken to be, when
            deciding whether they could prove more; with `math.inf` an image stops only where they provably cannot.

    >>> from multiguard.certify import TopK, look_plan
    >>> plan = AdaptivePlan(TopK(k=5, k_prime=3), look_plan(1000), radii=(0.25, 0.5))
    >>> plan.looks.draws[-1]
    1000
    """

    rule: Rule
    looks: Looks
    radii: tuple[float, ...]
    alpha: float = 0.001
    forecast_margin: float = 2.0


class Stopping:
    """Says of images, after a look, whether their draws may end.

    Args:
        plan: The plan.
        settings: How votes are made.
        num_labels: c, the number of labels there are.
        labelled: Whether rows carry the labels to protect; if not, their pilot draws choose them.
    """

    def __init__(self, plan: AdaptivePlan, settings: Settings, num_labels: int, *, labelled: bool) -> None:
        settings.check_rule(plan.rule, num_labels)
        self._rule, self._num_labels, self._labelled = plan.rule, num_labels, labelled
        self._stopping = StoppingRule(
            plan.rule,
            plan.looks,
            radii=plan.radii,
            num_labels=num_labels,
            sigma=settings.sigma,
            alpha=plan.alpha,
            forecast_margin=plan.forecast_margin,
        )
        self.look_fractions = tuple(float(fraction) for fraction in plan.looks.fractions)
        self.record = _record(plan)

    def decided(self, rows: Sequence[VoteRow]) -> list[bool]:
        """For each image whether its draws may end."""
        labels = [self._protected(row) for row in rows]
        return self._stopping.decided([as_array(row.votes, self._rule) for row in rows], labels)

    def _protected(self, row: VoteRow) -> tuple[int, ...]:
        if self._labelled:
            return row.labels
        assert row.pilot is not None
        return self._rule.returned(as_array(row.pilot, self._rule), self._num_labels)


def _record(plan: AdaptivePlan) -> dict[str, Any]:
    """What must agree for a run to resume, beside its looks; an infinite forecast margin is None in JSON."""
    forecast_margin = float(plan.forecast_margin) if math.isfinite(plan.forecast_margin) else None
    radii = tuple(float(radius) for radius in plan.radii)
    return {"radii": radii, "alpha": float(plan.alpha), "forecast_margin": forecast_margin, **plan.rule.options}
