"""What is certified from votes, as a config; and whether a run of votes can provide it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from msgspec import Meta

from multiguard.certify import Method, Rule, make_rule, rules
from multiguard.certify.arguments import check_alpha
from multiguard.certify.noise import Noise
from multiguard.certify.radii import LABEL_METHODS
from multiguard.certify.rules import RuleName, check_method
from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.config import Config, Count, Positive, described

if TYPE_CHECKING:
    from multiguard.votes import Provenance

Parameter = Literal["k", "k_prime", "threshold", "n", "alpha"]
ALL = "all"  # stands for every method that may certify the votes


class CertifyConfig(Config, frozen=True):
    """What is certified; a certificate's promise is for this choice, made without seeing the votes.

    Of adaptive votes all draws are taken, and of a band ablation every band: `draws` is then left out. Where every band
    votes, alpha has no effect.

    >>> CertifyConfig(k=3, k_prime=1).rule
    TopK(k=3, k_prime=1)
    >>> CertifyConfig(threshold=0.5, draws=1000).parameters
    {'threshold': 0.5, 'n': 1000, 'alpha': 0.001}
    """

    k: Annotated[Count | None, described("For top-k: labels that the smoothed classifier returns.")] = None
    k_prime: Annotated[Count | None, described("Labels that the model returns per draw, k'.")] = None
    threshold: Annotated[float | None, described("For threshold: the fraction of draws that a label needs.")] = None
    alpha: Annotated[float, described("The probability of a wrong certificate, per image.")] = 0.001
    draws: Annotated[Count | None, described("The first draws, this many [all; adaptive votes: always all].")] = None
    methods: Annotated[
        tuple[Method, ...],
        described(
            "coupled, joint, betting, paper, independent, jia or all [by the number of draws: coupled or joint; "
            "threshold: joint; adaptive votes: betting; bands: enumerated].",
            "method",
        ),
    ] = ()
    radius_to: Annotated[Positive | None, described("The largest radius of the curves [what the noise can prove].")] = (
        None
    )
    radius_step: Annotated[Positive | None, described("The step between two radii [a small part of that].")] = None
    bands: Annotated[
        Annotated[float, Meta(ge=0, lt=1)], described("The confidence of the bands of mean scores, 0 for none.")
    ] = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.alpha)

    @property
    def rule(self) -> Rule:
        """The smoothed classifier; without k, k' and threshold, `InvalidInputError`."""
        return self._made(self.rule_name or "top-k")

    @property
    def rule_name(self) -> RuleName | None:
        """The rule that the given options belong to; None where none is given."""
        if self.threshold is not None and self.k is None:
            return "threshold"
        return None if self.threshold is self.k is self.k_prime is None else "top-k"

    def rule_of(self, votes: RuleName) -> Rule:
        """The rule for votes that were cast for this rule; raises `InvalidInputError` unless its options are given.

        Votes of the top-k rule are ranked: they serve the threshold rule, too, with a k'.
        """
        name = "threshold" if votes == "threshold" else self.rule_name or votes
        if votes == "threshold" and self.k_prime is not None:
            raise InvalidInputError("k_prime belongs to ranked votes, and votes of the threshold rule are sets")
        if votes != "threshold" == name and self.k_prime is None:
            raise InvalidInputError(
                "k_prime is missing; of ranked votes the threshold rule takes the k' best labels of each draw"
            )
        return self._made(name)

    def _made(self, name: RuleName) -> Rule:
        return make_rule(name, k=self.k, k_prime=self.k_prime, threshold=self.threshold)

    def with_rule(self, rule: Rule) -> Self:
        """The same config for another rule."""
        options: dict[str, Any] = {"k": None, "k_prime": None, "threshold": None, **rule.options}
        return self.replace(**options)

    @property
    def parameters(self) -> dict[str, float | None]:
        """What can be varied, by name: the options of the rule, n and alpha."""
        return {**self.rule.options, "n": self.draws, "alpha": self.alpha}

    def vary(self, name: str, value: Any) -> Self:
        """The same config with another value of one of its parameters."""
        return self.replace(**{"draws" if name == "n" else name: value})

    def resolve(self, run: Provenance) -> Self:
        """The config with its draws and methods named; raises unless the votes of this run provide what it needs."""
        if run.rule == "threshold" and (self.rule_name == "top-k" or self.k_prime is not None):
            raise VotesError(_SETS)
        rule = self.rule_of(run.rule)
        rule.check(len(run.label_names))
        rule.check_ranks(run.k_max)
        draws = self._resolve_draws(run)
        return self.replace(draws=draws, methods=_resolve_methods(self.methods, rule, run, draws))

    def _resolve_draws(self, run: Provenance) -> int:
        if run.stops is not None and self.draws is not None:
            raise InvalidInputError(
                f"draws is {self.draws}, but these votes are adaptive: they decided themselves how many draws an image "
                "has, so that no fixed number holds; leave draws out"
            )
        if run.noise.enumerated and self.draws not in (None, run.draws):
            raise InvalidInputError(
                f"draws is {self.draws}, but every one of the {run.draws} bands of {run.noise} must vote; leave draws "
                "out"
            )
        if self.draws is not None and self.draws > run.draws:
            raise InvalidInputError(
                f"draws is {self.draws}, but these votes hold {run.draws} draws of each image; use 1 to {run.draws}, "
                "or vote again with more draws"
            )
        return run.draws if self.draws is None else self.draws


class SweepConfig(Config, frozen=True):
    """The values of each parameter to vary over the same votes, one parameter at a time.

    >>> SweepConfig(k=(1, 3), alpha=(0.1,)).vary
    {'k': (1, 3), 'alpha': (0.1,)}
    """

    k: Annotated[tuple[Count, ...], described("Values of k.")] = ()
    k_prime: Annotated[tuple[Count, ...], described("Values of k'.")] = ()
    threshold: Annotated[tuple[float, ...], described("Values of the threshold.")] = ()
    n: Annotated[tuple[Count, ...], described("Values of n, the first draws, this many.")] = ()
    alpha: Annotated[tuple[float, ...], described("Values of alpha.")] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for value in self.alpha:
            check_alpha(value)

    @property
    def vary(self) -> dict[Parameter, tuple[float, ...]]:
        """The values of each parameter that varies."""
        names: tuple[Parameter, ...] = get_args(Parameter)
        return {name: values for name in names if (values := getattr(self, name))}

    def configs(self, base: CertifyConfig, run: Provenance) -> list[CertifyConfig]:
        """The resolved configs, each different from the base and the others; raises unless the votes provide each.

        Where the base names no methods, each config has the default one of its own number of draws.
        """
        configs = [base.resolve(run)]
        for name, values in self.vary.items():
            if name not in configs[0].parameters:
                known = ", ".join(configs[0].parameters)
                raise InvalidInputError(f"sweep.{name}: the {run.rule} rule has no {name}; what varies is {known}")
            if name in ("n", "alpha") and run.noise.enumerated:
                raise InvalidInputError(f"{name} cannot be varied: every band votes, and nothing is random")
            configs += [base.vary(name, value).resolve(run) for value in values]
        return list(dict.fromkeys(configs))[1:]


_SETS = (
    "these are votes of the threshold rule, one unranked set of labels per draw, without a k': certify them with "
    "--threshold (CertifyConfig(threshold=t)), or vote again with --rule top-k"
)


def check_methods(methods: Sequence[Method], rule: Rule, noise: Noise | str | None = None) -> tuple[Method, ...]:
    """The methods, each known to the rule and to the noise; repeated ones once. `all` is left as it is."""
    return tuple(dict.fromkeys(one if one == ALL else check_method(one, rule, noise) for one in methods))


def is_one_claim(rule: Rule, methods: Sequence[Method]) -> bool:
    """Whether a set of labels that pilot draws chose is one label, and one method proves what is claimed of both."""
    return rule.k == 1 and len(methods) == 1 and methods[0] in LABEL_METHODS


def set_method(rule: Rule, run: Provenance, draws: int) -> Method:
    """The default method that proves what is claimed of sets, for this number of draws."""
    return "betting" if _why_not_fixed(run) else rules.default_method(rule, run.noise, draws)


def label_method(run: Provenance) -> Method:
    """The method that proves what is claimed of single labels: for a fixed number of draws the fastest."""
    return "betting" if _why_not_fixed(run) else rules.default_label_method(run.noise)


def _resolve_methods(methods: Sequence[Method], rule: Rule, run: Provenance, draws: int) -> tuple[Method, ...]:
    """The methods, the default one if none is given; raises unless each may certify the votes of this run."""
    default, why = set_method(rule, run, draws), _why_not_fixed(run)
    given = list(methods or [default])
    if ALL in given:
        every = [] if default == "enumerated" or why else [each for each in rule.methods if each != "enumerated"]
        given = [default, *every, *(one for one in given if one != ALL)]
    checked = check_methods(given, rule, run.noise)
    others = [method for method in checked if method != "betting"]
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
