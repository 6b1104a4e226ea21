"""One voting run answers many settings: one parameter at a time around a base setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Progress, Steps, checked_methods, portion_radii, portions
from multiguard.evaluate.curve import Curve, averaged, checked_radius
from multiguard.evaluate.scores import Floats
from multiguard.evaluate.setting import Setting, resolved
from multiguard.naming import unknown_name

if TYPE_CHECKING:
    from multiguard.votes import Votes

Parameter = Literal["k", "k_prime", "n", "alpha"]
PARAMETERS: tuple[Parameter, ...] = get_args(Parameter)


def sweep(
    votes: Votes,
    setting: Setting,
    vary: Mapping[Parameter, Sequence[float]],
    radius: ArrayLike,
    *,
    methods: Sequence[Method] = ("joint",),
    progress: Progress | None = None,
) -> list[Curve]:
    """At each point of the sweep alone the promise of `curves`; the best point picked afterwards is not covered.

    Every picture's votes are read once. All points are checked before the first is certified.

    Args:
        votes: What `read_votes` returns.
        setting: The base setting, from which one parameter at a time is moved.
        vary: The values of each parameter: "k", "k_prime", "n" (the first so many draws) and "alpha". Values equal to
            the base are left out, since `curves` has them, and repeated ones are taken once.
        radius: (radii,), the l2-norms to ask about.
        methods: The methods to prove with.
        progress: Called with the number of settings done and of all settings.

    Returns:
        For each setting, in the order of `vary`, a curve for each method and averaging.
    """
    asked, methods = checked_radius(radius), checked_methods(methods)
    settings = swept_settings(votes, setting, vary)
    if not settings:
        return []
    radii: dict[tuple[Setting, Method], list[Floats]] = {(one, method): [] for one in settings for method in methods}
    steps = Steps(len(settings), len(radii) * len(votes), progress)
    for rows in portions(votes):
        for (one, method), found in radii.items():
            found += portion_radii(rows, votes, one, method)
            steps.take(len(rows))
    return [
        curve
        for (one, method), found in radii.items()
        for curve in averaged(method, one, votes.provenance.sigma, found, votes.labels, asked)
    ]


def swept_settings(votes: Votes, setting: Setting, vary: Mapping[Parameter, Sequence[float]]) -> list[Setting]:
    """The settings of a sweep in order, each different from the base and from the others, each found in the votes."""
    base = resolved(setting, votes.provenance)
    found = [base]
    for name, values in vary.items():
        if name not in PARAMETERS:
            raise InvalidInputError(unknown_name("parameter of a sweep", name, PARAMETERS))
        field = "draws" if name == "n" else name
        changes: list[dict[str, Any]] = [{field: value} for value in values]
        found += [resolved(replace(base, **change), votes.provenance) for change in changes]
    return list(dict.fromkeys(found))[1:]
