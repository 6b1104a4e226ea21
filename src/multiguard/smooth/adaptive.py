"""Adaptive draws: an image stops once its claims are settled, or more draws would not settle them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multiguard.certify import Rule, settled_by_betting
from multiguard.certify.arguments import check_alpha, check_count, check_forecast_margin, check_radii
from multiguard.votes import VoteRow
from multiguard.votes.types import as_array

if TYPE_CHECKING:
    from multiguard.smooth.smoother import Smoother

# The numbers of draws at which an image may stop; at some of them the method betting chooses its bets again.
_STOPS = (50, 100, 200, 300, 500, 700, *(m * 10**e for e in range(2, 8) for m in (10, 14, 20, 30, 50, 70)))
# A process that has made no decision for these seconds ends, also if its parent was killed.
_IDLE_SECONDS = 30
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class AdaptivePlan:
    """When an image stops: once every claim at the radii is proved by the method betting, or a forecast gives it up.

    Certificates of the votes by this method hold whatever the plan is, for any rule, alpha and radius: it decides only
    where draws are spent. A run may be extended later, with a larger `max_draws`.

    The forecast of further draws assumes them to be `forecast_margin` standard deviations better than those so far.
    With `math.inf` an image stops only if all its claims are proved.

    >>> from multiguard.certify import TopK
    >>> AdaptivePlan(TopK(k=5, k_prime=3), radii=(0.25, 0.5), max_draws=1000).stops
    (50, 100, 200, 300, 500, 700, 1000)
    """

    rule: Rule  # the smoothed classifier
    radii: tuple[float, ...]  # where claims must be settled
    max_draws: int = 10_000  # the most draws that an image takes
    alpha: float = 0.001  # the error allowed
    forecast_margin: float = 1.0

    @property
    def stops(self) -> tuple[int, ...]:
        """The numbers of draws at which an image may stop."""
        return (*(draws for draws in _STOPS if draws < self.max_draws), self.max_draws)


class Stopping:
    """Decides which images stop; without labels (`labelled`), pilot draws choose those to protect."""

    def __init__(self, plan: AdaptivePlan, smoother: "Smoother", num_labels: int, *, labelled: bool) -> None:
        smoother.settings.check_rule(plan.rule, num_labels)
        self._plan, self._labelled, self._smoother = plan, labelled, smoother
        check_count("max_draws", plan.max_draws)
        radii = tuple(check_radii(plan.radii).tolist())
        smoother.noise.down(1.0, radii)  # refuses radii that its attacker does not have, such as half a pixel
        self._options: dict[str, Any] = {"num_labels": num_labels, "noise": smoother.noise, "radii": radii}
        self._options["alpha"] = alpha = check_alpha(plan.alpha)
        margin = check_forecast_margin(plan.forecast_margin)
        self._options |= {"draws": plan.max_draws, "forecast_margin": margin}
        # What must agree for a run to resume, as well as its stops; an infinite forecast margin is None in JSON.
        finite = margin if math.isfinite(margin) else None
        self.record = {"radii": radii, "alpha": alpha, "forecast_margin": finite, **plan.rule.options}

    def decided(self, rows: Sequence[VoteRow]) -> list[bool]:
        """For each image whether its draws may end, computed in worker processes or in this one."""
        rule, options = self._plan.rule, self._options
        votes, labels = [as_array(row.votes, rule) for row in rows], [self._protected(row) for row in rows]
        if (processes := _processes(self._smoother.settings.device)) > 1:
            from joblib.externals.loky import get_reusable_executor
            from joblib.externals.loky.process_executor import BrokenProcessPool

            executor = get_reusable_executor(processes, timeout=_IDLE_SECONDS, env=_ONE_THREAD)
            size = math.ceil(len(rows) / processes) or 1  # few tasks, since sending one has a fixed cost
            tasks = [slice(first, first + size) for first in range(0, len(rows), size)]
            try:
                parts = [executor.submit(settled_by_betting, votes[t], labels[t], rule, **options) for t in tasks]
                return [stops for part in parts for stops in part.result()]
            except BrokenProcessPool:  # one was killed, for want of memory perhaps: this process can do it too
                pass
        return settled_by_betting(votes, labels, rule, **options)

    def _protected(self, row: VoteRow) -> tuple[int, ...]:
        if self._labelled:
            return row.labels
        assert row.pilot is not None
        return self._plan.rule.returned(as_array(row.pilot, self._plan.rule), self._options["num_labels"])


def _processes(device: str) -> int:
    """How many processes decide: one decision takes 10 to 30 ms, in which a GPU draws hundreds of times.

    On a CPU only this one, which has no processor to spare.
    """
    if device == "cpu":
        return 1
    from joblib.externals.loky import cpu_count

    return int(cpu_count()) - 1
