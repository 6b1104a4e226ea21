"""Sweeps: many configs certified from one run of votes, one parameter at a time around a base config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.certify.noise import BandAblation
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Progress, certify_configs, per_unit
from multiguard.evaluate.certifier import LabelSource, resolve_methods
from multiguard.evaluate.config import CertifyConfig, Parameter
from multiguard.evaluate.curves import Curve, curves
from multiguard.evaluate.scores import check_radius
from multiguard.io.names import unknown_name

if TYPE_CHECKING:
    from multiguard.votes import Votes


def sweep(
    votes: Votes,
    config: CertifyConfig,
    vary: Mapping[Parameter, Sequence[float]],
    radius: ArrayLike,
    *,
    methods: Sequence[Method] | None = None,
    labels: LabelSource = "truth",
    progress: Progress | None = None,
) -> list[Curve]:
    """At each point of the sweep alone the promise of `curves`; the best point picked afterwards is not covered.

    The votes of every image are read once. All points are checked before the first is certified.

    Args:
        votes: What `read_votes` returns.
        config: The base config, of which one parameter at a time is varied.
        vary: The values of each parameter: "k" and "k_prime", or "threshold"; "n" (the first so many draws), unless the
            votes are adaptive; and "alpha". Values equal to the base are left out, since `curves` has them, and
            repeated ones are taken once.
        radius: (radii,), in the unit of the noise's attacker.
        methods: The methods to prove with; the default is that of `certify_votes`.
        labels: As in `certify_votes`; pilot draws choose the labels again at each point.
        progress: Called with the number of configs done and of all configs.

    Returns:
        For each config, in the order of `vary`, a curve for each method and averaging.

    >>> from multiguard import TopK, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> found = sweep(votes, CertifyConfig(TopK(k=10, k_prime=3)), {"k": [5, 10, 15]}, [0.0, 0.25])
    >>> [(curve.config.rule.k, curve.averaging) for curve in found]
    [(5, 'mean'), (5, 'pooled'), (15, 'mean'), (15, 'pooled')]
    """
    run = votes.provenance
    grid, proven_by = check_radius(radius, run.noise), resolve_methods(methods, config, run)
    configs = sweep_configs(votes, config, vary)
    if not configs:
        return []
    counter = per_unit(progress, len(configs))
    certified = certify_configs(votes, configs, proven_by, labels, counter, sets_only=True)
    return [curve for certificates in certified for curve in curves(certificates, grid)]


def sweep_configs(
    votes: Votes, config: CertifyConfig, vary: Mapping[Parameter, Sequence[float]]
) -> list[CertifyConfig]:
    """The configs of a sweep in order, each different from the base and from the others, each found in the votes."""
    configs = [config.resolve(votes.provenance)]
    for name, values in vary.items():
        if name not in config.parameters:
            known = list(config.parameters)
            raise InvalidInputError(unknown_name(f"parameter of a sweep of the {config.rule.name} rule", name, known))
        if name in ("n", "alpha") and isinstance(votes.provenance.noise, BandAblation):
            raise InvalidInputError(f"{name} cannot be varied: every band votes, and nothing is random")
        configs += [config.vary(name, value).resolve(votes.provenance) for value in values]
    return list(dict.fromkeys(configs))[1:]
