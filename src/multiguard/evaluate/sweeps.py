"""One voting run answers many settings: one parameter at a time around a base setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method, Radii
from multiguard.certify.arrays import Floats
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Progress, Steps, draws_taken, portions
from multiguard.evaluate.certifier import Certifier, Labels, LabelSource, check_methods
from multiguard.evaluate.config import CertifyConfig, Parameter
from multiguard.evaluate.curves import Curve, Images, averaged
from multiguard.evaluate.scores import check_radius
from multiguard.io.names import unknown_name

if TYPE_CHECKING:
    from multiguard.votes import VoteRow, Votes


def sweep(
    votes: Votes,
    config: CertifyConfig,
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
        config: The base config, from which one parameter at a time is moved.
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
    grid, methods = check_radius(radius), check_methods(methods, config.rule)
    points = [Point(votes, one, labels, methods) for one in sweep_configs(votes, config, vary)]
    if not points:
        return []
    steps = Steps(len(points), len(points) * len(votes), progress)
    for rows in portions(votes):
        for point in points:
            point.take(rows)
            steps.take(len(rows))
    return [curve for point in points for curve in point.curves(grid)]


class Point:
    """One config of a sweep, and what has been proved there so far."""

    def __init__(self, votes: Votes, config: CertifyConfig, source: LabelSource, methods: Sequence[Method]) -> None:
        self._votes, self._certifier = votes, Certifier(votes, config, source)
        self._labels: list[Labels] = []
        self._radii: dict[Method, list[Radii]] = {method: [] for method in methods}

    def take(self, rows: Sequence[VoteRow]) -> None:
        """Certify some more images."""
        certifier = self._certifier
        own = [certifier.labels(row) for row in rows]
        alone = certifier.label_radii(rows, own) if certifier.source == "pilot" else [np.empty(0)] * len(rows)
        for method, radii in self._radii.items():
            radii += certifier.radii(rows, own, method, alone)
        self._labels += own

    def curves(self, radius: Floats) -> list[Curve]:
        """Every method in both averagings, of all images taken."""
        config = self._certifier.config
        sigma, failed = self._votes.provenance.sigma, len(self._votes.failures)
        images = Images(config, sigma, self._labels, draws_taken(self._votes, config), failed)
        return [curve for method, radii in self._radii.items() for curve in averaged(method, images, radii, radius)]


def sweep_configs(
    votes: Votes, config: CertifyConfig, vary: Mapping[Parameter, Sequence[float]]
) -> list[CertifyConfig]:
    """The configs of a sweep in order, each different from the base and from the others, each found in the votes."""
    configs = [config.resolve(votes.provenance)]
    for name, values in vary.items():
        if name not in config.parameters:
            known = list(config.parameters)
            raise InvalidInputError(unknown_name(f"parameter of a sweep of the {config.rule.name} rule", name, known))
        configs += [config.vary(name, value).resolve(votes.provenance) for value in values]
    return list(dict.fromkeys(configs))[1:]
