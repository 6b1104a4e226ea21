"""Which methods may certify the votes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from multiguard.certify import Method, Rule, rules
from multiguard.certify.noise import Noise
from multiguard.certify.radii import LABEL_METHODS
from multiguard.certify.rules import check_method
from multiguard.errors import InvalidInputError

if TYPE_CHECKING:
    from multiguard.votes import Provenance

ALL = "all"  # stands for every method that may certify the votes


def check_methods(methods: Sequence[Method], rule: Rule, noise: Noise | str | None = None) -> tuple[Method, ...]:
    """The methods, each known to the rule and to the noise; repeated ones once. `all` is left as it is."""
    return tuple(dict.fromkeys(one if one == ALL else check_method(one, rule, noise) for one in methods))


def is_one_claim(rule: Rule, methods: Sequence[Method]) -> bool:
    """Whether a set of labels that pilot draws chose is one label, and one method proves what is claimed of both."""
    return rule.k == 1 and len(methods) == 1 and methods[0] in LABEL_METHODS


def set_method(rule: Rule, run: Provenance, draws: int) -> Method:
    """The default method that proves what is claimed of sets by so many draws."""
    return "betting" if _why_not_fixed(run) else rules.default_method(rule, run.noise, draws)


def every_method(rule: Rule, run: Provenance, draws: int) -> tuple[Method, ...]:
    """The methods that may certify these votes, the default first."""
    first = set_method(rule, run, draws)
    if first == "enumerated" or _why_not_fixed(run):
        return (first,)
    return tuple(dict.fromkeys((first, *(each for each in rule.methods if each != "enumerated"))))


def label_method(run: Provenance) -> Method:
    """The method that proves what is claimed of single labels: for a fixed number of draws the fastest."""
    return "betting" if _why_not_fixed(run) else rules.default_label_method(run.noise)


def resolve_methods(methods: Sequence[Method], rule: Rule, run: Provenance, draws: int) -> tuple[Method, ...]:
    """The methods, the default one if none is given; raises unless each may certify the votes of this run."""
    given = methods or (set_method(rule, run, draws),)
    if ALL in given:
        given = (*every_method(rule, run, draws), *(one for one in given if one != ALL))
    checked = check_methods(given, rule, run.noise)
    others = [method for method in checked if method != "betting"]
    why = _why_not_fixed(run)
    if why is not None and others:
        raise InvalidInputError(
            f"methods: {others[0]!r} needs a number of draws fixed beforehand, and {why}; certify them by betting"
        )
    return checked


def _why_not_fixed(run: Provenance) -> str | None:
    """Why the number of draws may depend on the votes; None if it was fixed beforehand."""
    if run.stops is not None:
        return "these votes are adaptive: they decided themselves how many draws each image has"
    if run.earlier_draws:
        return f"these votes were extended from {run.earlier_draws[0]} draws, perhaps because of what those proved"
    return None
