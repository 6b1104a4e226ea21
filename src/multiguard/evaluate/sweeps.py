"""One voting run answers many settings: one parameter at a time around a base setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Progress, Steps, draws_taken, portions
from multiguard.evaluate.curve import Curve, Images, averaged, checked_radius
from multiguard.evaluate.question import Labels, LabelSource, Proved, checked_methods, question
from multiguard.evaluate.scores import Floats
from multiguard.evaluate.setting import AnySetting, resolved
from multiguard.io.names import unknown_name

if TYPE_CHECKING:
    from multiguard.votes import Rule, VoteRow, Votes

Parameter = Literal["k", "k_prime", "threshold", "n", "alpha"]
PARAMETERS: dict[Rule, tuple[Parameter, ...]] = {
    "top-k": ("k", "k_prime", "n", "alpha"),
    "threshold": ("threshold", "n", "alpha"),
}


def sweep(
    votes: Votes,
    setting: AnySetting,
    vary: Mapping[Parameter, Sequence[float]],
    radius: ArrayLike,
    *,
    methods: Sequence[Method] = ("joint",),
    labels: LabelSource = "truth",
    progress: Progress | None = None,
) -> list[Curve]:
    """At each point of the sweep alone the promise of `curves`; the best point picked afterwards is not covered.

    Every image's votes are read once. All points are checked before the first is certified.

    Args:
        votes: What `read_votes` returns.
        setting: The base setting, from which one parameter at a time is moved.
        vary: The values of each parameter: "k" and "k_prime", or "threshold"; "n" (the first so many draws), unless the
            votes are adaptive; and "alpha". Values equal to the base are left out, since `curves` has them, and
            repeated ones are taken once.
        radius: (radii,), the l2-norms to ask about.
        methods: The methods to prove with.
        labels: As in `certify_votes`; pilot draws choose the labels anew at each point.
        progress: Called with the number of settings done and of all settings.

    Returns:
        For each setting, in the order of `vary`, a curve for each method and averaging.
    """
    grid, methods = checked_radius(radius), checked_methods(methods, setting)
    points = [Point(votes, one, labels, methods) for one in swept_settings(votes, setting, vary)]
    if not points:
        return []
    steps = Steps(len(points), len(points) * len(votes), progress)
    for rows in portions(votes):
        for point in points:
            point.take(rows)
            steps.take(len(rows))
    return [curve for point in points for curve in point.curves(grid)]


class Point:
    """One setting of a sweep, and what has been proved there so far."""

    def __init__(self, votes: Votes, setting: AnySetting, source: LabelSource, methods: Sequence[Method]) -> None:
        self._votes, self._asked = votes, question(votes, setting, source)
        self._labels: list[Labels] = []
        self._proved: dict[Method, list[Proved]] = {method: [] for method in methods}

    def take(self, rows: Sequence[VoteRow]) -> None:
        """Certify some more images."""
        own = [self._asked.labels(row) for row in rows]
        alone = self._asked.label_radii(rows, own) if self._asked.source == "pilot" else [np.empty(0)] * len(rows)
        for method, found in self._proved.items():
            found += self._asked.raised(self._asked.proved(rows, own, method), alone, method)
        self._labels += own

    def curves(self, radius: Floats) -> list[Curve]:
        """Every method in both averagings, of all images taken."""
        setting = self._asked.setting
        sigma, failed = self._votes.provenance.sigma, len(self._votes.failures)
        images = Images(setting, sigma, self._labels, draws_taken(self._votes, setting), failed)
        return [curve for method, proved in self._proved.items() for curve in averaged(method, images, proved, radius)]


def swept_settings(votes: Votes, setting: AnySetting, vary: Mapping[Parameter, Sequence[float]]) -> list[AnySetting]:
    """The settings of a sweep in order, each different from the base and from the others, each found in the votes."""
    found = [resolved(setting, votes.provenance)]
    known = PARAMETERS[setting.rule]
    for name, values in vary.items():
        if name not in known:
            raise InvalidInputError(unknown_name(f"parameter of a sweep of the {setting.rule} rule", name, known))
        field = "draws" if name == "n" else name
        changes: list[dict[str, Any]] = [{field: value} for value in values]
        found += [resolved(replace(setting, **change), votes.provenance) for change in changes]
    return list(dict.fromkeys(found))[1:]
