"""Methods of users: each is a name, a function of the votes of one image, and what that function guarantees."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify.arrays import Bools, Floats
from multiguard.errors import InvalidInputError

if TYPE_CHECKING:
    from multiguard.certify.noise import Noise
    from multiguard.certify.rules import Rule, RuleName

MethodFunction = Callable[..., Any]
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")


@dataclass(frozen=True)
class OwnMethod:
    """A method that a user registered."""

    name: str
    function: MethodFunction
    guarantee: str
    rules: tuple[RuleName, ...]
    noises: tuple[str, ...]

    def solve(
        self, hits: Bools, labels: Sequence[int], rule: Rule, noise: Noise, alpha: float
    ) -> tuple[Floats, Floats | None]:
        """The radii of one image, in the form of those of all methods; anything else raises `InvalidInputError`."""
        found = self.function(hits.copy(), tuple(labels), rule, noise=noise, alpha=alpha)
        true, false = (found, None) if rule.name == "top-k" else found
        sizes = min(len(labels), int(rule.options.get("k", len(labels))))
        # A larger e is a stronger claim, and a smaller m: the running minimum claims no more than was returned.
        whole = np.floor if noise.whole else np.positive
        floors = whole(np.minimum.accumulate(self._checked(true, sizes, "e = 1, 2, ...")))
        if false is None:
            return floors, None
        ceilings = self._checked(false, hits.shape[1] - len(labels), "m = 0, 1, ...")
        return floors, whole(np.minimum.accumulate(ceilings[::-1])[::-1])

    def _checked(self, radii: Any, count: int, claims: str) -> Floats:
        values = np.asarray(radii, dtype=np.float64)
        if values.shape != (count,) or not np.all((values >= 0) | np.isneginf(values)):
            raise InvalidInputError(
                f"the method {self.name!r} returned {values.tolist()}; expected {count} radii, for {claims}, each 0 or "
                "more, or -inf where nothing is proved"
            )
        return values


_OWN: dict[str, OwnMethod] = {}


def register_method(
    name: str,
    function: MethodFunction,
    *,
    guarantee: str,
    rules: Sequence[RuleName] = ("top-k",),
    noises: Sequence[str] = ("gaussian",),
) -> None:
    """Make a method of your own known wherever a method is named; its promise is yours to prove.

    For each image `function(hits, labels, rule, noise=..., alpha=...)` must return radii that all hold at once with
    probability at least 1 - alpha over the draws, a number of them fixed beforehand, for `labels` chosen without them.
    Adaptive votes are refused. What it returns is checked for its form only.

    The name is known in this process: files that name it are read only after it has been registered again.

    Args:
        name: Lower-case letters, digits, - and _; no name of a built-in method. A name of yours may be registered
            again, and then means the new function.
        function: It takes `hits`, boolean (draws, c): the labels that the base classifier returned in each draw; the
            indices of the `labels` to protect, the `rule`, `noise` and `alpha`. For `TopK` it returns (min(d, k),), the
            radii up to which at least e = 1, 2, ... labels are returned; for `Threshold` a pair of (d,) such radii and
            (c - d,) radii up to which at most m = 0, 1, ... other labels are. -inf where nothing is proved.
        guarantee: What holds and why, in a sentence, for the reader of results.
        rules: The names of the rules that it is for.
        noises: The kinds of noise that it is for: "gaussian", "uniform", "pixels" or "band".

    >>> from scipy.stats import norm
    >>> from multiguard.certify import TopK, certified_radii, clopper_pearson_lower
    >>> def majority(hits, labels, rule, *, noise, alpha):  # Cohen et al.: one label, in more than half of all draws
    ...     least = clopper_pearson_lower(hits[:, labels[0]].sum(), len(hits), alpha)
    ...     return [noise.sigma * norm.ppf(least) if least > 0.5 else -np.inf]
    >>> register_method("majority", majority, guarantee="p > 1/2 by Clopper-Pearson, then Neyman-Pearson")
    >>> votes = np.random.default_rng(0).permutation([[0]] * 90 + [[1]] * 10)
    >>> certified_radii(votes, [0], TopK(1, 1), sigma=0.5, num_labels=3, method="majority").true.round(3)
    array([0.378])
    """
    from multiguard.certify.noise import NOISES
    from multiguard.certify.rules import METHODS, RULES

    if not _NAME.fullmatch(name) or name in METHODS or name == "all":
        raise InvalidInputError(
            f"name is {name!r}; expected lower-case letters, digits, - and _, and no built-in method "
            f"({', '.join(METHODS)}, all)"
        )
    if not guarantee.strip():
        raise InvalidInputError(f"guarantee is empty: say what holds for the radii of {name!r}, and why")
    if not rules or not set(rules) <= set(RULES):
        raise InvalidInputError(f"rules must be some of {', '.join(RULES)}, not {list(rules)}")
    if not noises or not set(noises) <= set(NOISES):
        raise InvalidInputError(f"noises must be some of {', '.join(NOISES)}, not {list(noises)}")
    _OWN[name] = OwnMethod(name, function, guarantee, tuple(rules), tuple(noises))


def own_method(name: str) -> OwnMethod | None:
    """The registered method of this name; None for a built-in or an unknown one."""
    return _OWN.get(name)


def own_methods(rule: RuleName) -> tuple[str, ...]:
    """The names of the methods registered for this rule."""
    return tuple(name for name, method in _OWN.items() if rule in method.rules)
