"""What is certified from votes: one config object, and whether a run of votes can provide it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from multiguard.certify import Rule, TopK, make_rule
from multiguard.certify.arguments import check_alpha, is_whole
from multiguard.certify.noise import BandAblation
from multiguard.certify.rules import check_ranks
from multiguard.errors import InvalidInputError, VotesError

if TYPE_CHECKING:
    from multiguard.votes import Provenance

Parameter = Literal["k", "k_prime", "threshold", "n", "alpha"]


@dataclass(frozen=True)
class CertifyConfig:
    """What one certificate is about; its promise is for this choice, made without seeing the votes.

    Attributes:
        rule: The smoothed classifier, `TopK` or `Threshold`.
        alpha: The error allowed for each image; it plays no part where every band of an ablation votes.
        n: The first n draws of each image; None for all of them, the only choice for adaptive votes and for bands.

    >>> from multiguard.certify import TopK
    >>> CertifyConfig(TopK(k=5, k_prime=3), n=1000)
    CertifyConfig(rule=TopK(k=5, k_prime=3), alpha=0.001, n=1000)
    """

    rule: Rule
    alpha: float = 0.001
    n: int | None = None

    @property
    def draws(self) -> int:
        """The value of `n`, if it is a number; in an adaptive run the most draws that an image takes."""
        if self.n is None:
            raise InvalidInputError("n is None: how many draws that means is known from the votes only; resolve it")
        return self.n

    @property
    def parameters(self) -> dict[str, float | None]:
        """Every parameter by its name: those of the rule, then n and alpha."""
        return {**self.rule.options, "n": self.n, "alpha": self.alpha}

    @property
    def record(self) -> dict[str, float | None]:
        """The fields by the names that files and JSON output have for them."""
        return {**self.rule.options, "alpha": self.alpha, "draws": self.n}

    def vary(self, name: str, value: Any) -> CertifyConfig:
        """The same config with another value of one of its parameters."""
        if name in ("n", "alpha"):
            return replace(self, **{name: value})
        return replace(self, rule=make_rule(self.rule.name, **{**self.rule.options, name: value}))

    def resolve(self, run: Provenance) -> CertifyConfig:
        """The config with n as a number, after everything that it needs has been found in the votes of this run."""
        if self.rule.name != run.rule:
            raise VotesError(_OTHER_RULE[run.rule])
        self.rule.check(len(run.label_names))
        alpha = check_alpha(self.alpha)
        if isinstance(self.rule, TopK) and run.k_max is not None:
            check_ranks(self.rule.k_prime, run.k_max)
        return CertifyConfig(self.rule, alpha, self._resolve_n(run))

    def _resolve_n(self, run: Provenance) -> int:
        if run.stops is not None and self.n is not None:
            raise InvalidInputError(
                f"n = {self.n!r}, but these votes are adaptive: they decided themselves how many draws an image has, "
                "so that no fixed n holds; leave n out"
            )
        if isinstance(run.noise, BandAblation) and self.n not in (None, run.draws):
            raise InvalidInputError(
                f"n = {self.n!r}, but every one of the {run.draws} bands of {run.noise} must vote; leave n out"
            )
        n = run.draws if self.n is None else self.n
        if not is_whole(n) or not 1 <= n <= run.draws:
            raise InvalidInputError(
                f"n = {n!r}, but these votes hold {run.draws} draws of each image; use 1 to {run.draws}, or vote again "
                "with more draws"
            )
        return int(n)


_OTHER_RULE = {
    "threshold": "these are votes of the threshold rule, one unranked set of labels per draw, without a k': certify "
    "them with --rule threshold (rule=Threshold(t)), or vote again with --rule top-k",
    "top-k": "these are votes of the top-k rule, the ranked labels of each draw, which do not say what passes a "
    "threshold: certify them with --rule top-k, --k and --k-prime (rule=TopK(k, k_prime)), or vote again with "
    "--rule threshold",
}
