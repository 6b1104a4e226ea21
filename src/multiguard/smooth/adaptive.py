"""Adaptive draws: an image stops at the first look after which more draws would not help."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from multiguard.certify import Looks, Rule, StoppingRule
from multiguard.smooth.settings import Settings
from multiguard.votes import VoteRow
from multiguard.votes.types import as_array


@dataclass(frozen=True)
class AdaptivePlan:
    """When an image stops: at the first look whose forecast proves no more at any of the radii. Fixed before any draw.

    Certificates of the votes hold for any rule, alpha and radius, if alpha is split over these looks: the plan decides
    only where draws are spent.

    The forecast of further draws assumes them to be `forecast_margin` standard deviations better than those so far.
    With `math.inf` an image stops only if further draws provably cannot prove more.

    >>> from multiguard.certify import TopK, look_plan
    >>> plan = AdaptivePlan(TopK(k=5, k_prime=3), look_plan(1000), radii=(0.25, 0.5))
    >>> plan.looks.draws[-1]
    1000
    """

    rule: Rule  # the smoothed classifier
    looks: Looks  # the numbers of draws at which an image may stop, and the fraction of alpha for each
    radii: tuple[float, ...]  # where more draws must be able to prove more
    alpha: float = 0.001  # the error allowed, over all looks together
    forecast_margin: float = 2.0


class Stopping:
    """Decides after each look which images stop; without labels (`labelled`), pilot draws choose those to protect."""

    def __init__(self, plan: AdaptivePlan, settings: Settings, num_labels: int, *, labelled: bool) -> None:
        settings.check_rule(plan.rule, num_labels)
        self._rule, self._num_labels, self._labelled = plan.rule, num_labels, labelled
        self._stopping = StoppingRule(**vars(plan), num_labels=num_labels, sigma=settings.sigma)
        self.look_fractions = tuple(float(fraction) for fraction in plan.looks.fractions)
        # What must agree for a run to resume, beside its looks; an infinite forecast margin is None in JSON.
        margin = float(plan.forecast_margin) if math.isfinite(plan.forecast_margin) else None
        radii = tuple(float(radius) for radius in plan.radii)
        self.record = {"radii": radii, "alpha": float(plan.alpha), "forecast_margin": margin, **plan.rule.options}

    def decided(self, rows: Sequence[VoteRow]) -> list[bool]:
        """For each image whether its draws may end."""
        labels = [self._protected(row) for row in rows]
        return self._stopping.decided([as_array(row.votes, self._rule.name) for row in rows], labels)

    def _protected(self, row: VoteRow) -> tuple[int, ...]:
        if self._labelled:
            return row.labels
        assert row.pilot is not None
        return self._rule.returned(as_array(row.pilot, self._rule.name), self._num_labels)
