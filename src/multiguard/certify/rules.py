"""The smoothed classifier g: which labels it returns, given how often the base classifier f returns each label.

With p_i the probability that f returns label i for a noisy copy of the image, g returns the k labels of largest p_i
(`TopK`) or every label with p_i >= t (`Threshold`).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.arguments import check_count, check_fraction
from multiguard.certify.arrays import Ints
from multiguard.certify.noise import BandAblation, Gaussian, Noise
from multiguard.certify.registry import own_method, own_methods
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

RuleName = Literal["top-k", "threshold"]
RULES: tuple[RuleName, ...] = get_args(RuleName)
Method = str  # one of `METHODS`, or a name given to `register_method`
# The numbers of draws for which `coupled` proves more than `joint` on the votes of real images (docs/theory.md 9.7):
# the fewest, the most for k' = 1, and the most for larger k'.
COUPLED_FROM, COUPLED_TO, COUPLED_TO_MANY = 80, 50_000, 100_000
METHODS: tuple[Method, ...] = ("joint", "coupled", "betting", "paper", "independent", "jia", "enumerated")


@dataclass(frozen=True)
class TopK:
    """g returns the k labels that f returns most often; f returns k_prime labels per draw.

    Attributes:
        k: How many labels g returns.
        k_prime: How many labels f returns, k'.

    >>> rule = TopK(k=2, k_prime=1)
    >>> ranked = np.array([[3, 0], [3, 1], [1, 3]])  # three draws, the best label first
    >>> rule.hits(ranked, num_labels=4)
    array([0, 1, 0, 2])
    >>> rule.returned(ranked, num_labels=4)
    (3, 1)
    """

    k: int
    k_prime: int
    name: ClassVar[RuleName] = "top-k"
    methods: ClassVar[tuple[Method, ...]] = METHODS

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count("k", self.k))
        object.__setattr__(self, "k_prime", check_count("k_prime", self.k_prime))

    @property
    def options(self) -> dict[str, float]:
        """The arguments of `make_rule` that make this rule."""
        return {"k": self.k, "k_prime": self.k_prime}

    def check(self, num_labels: int) -> None:
        """Raises `InvalidInputError` unless there are at least k and k' labels."""
        check_count("num_labels", num_labels)
        check_count("k", self.k, num_labels)
        check_count("k_prime", self.k_prime, num_labels)

    def hits(self, votes: NDArray[Any], num_labels: int) -> Ints:
        """(num_labels,) in how many draws f returned each label; votes: (draws, K') integers, the best label first."""
        if not np.issubdtype(votes.dtype, np.integer) or votes.ndim != 2:
            raise InvalidInputError(
                f"votes of the top-k rule are integers (draws, K'), got {votes.dtype} {votes.shape}"
            )
        check_ranks(self.k_prime, votes.shape[1])
        return np.bincount(votes[:, : self.k_prime].ravel(), minlength=num_labels)

    def returned(self, votes: NDArray[Any], num_labels: int) -> tuple[int, ...]:
        """The labels that g returns according to these draws, most hits first; ties go to the smaller index.

        They are k, or fewer if the draws hit fewer: of labels without a hit nothing is known.
        """
        hits = self.hits(votes, num_labels)
        return tuple(int(label) for label in np.argsort(-hits, kind="stable")[: self.k] if hits[label] > 0)


@dataclass(frozen=True)
class Threshold:
    """g returns every label that f returns with probability at least t; f returns any set of labels per draw.

    Attributes:
        t: The probability, strictly between 0 and 1.

    >>> rule = Threshold(t=0.5)
    >>> sets = np.array([[True, True, False], [False, True, False]])  # two draws, three labels
    >>> rule.hits(sets, num_labels=3)
    array([1, 2, 0])
    >>> rule.returned(sets, num_labels=3)
    (1, 0)
    """

    t: float
    name: ClassVar[RuleName] = "threshold"
    methods: ClassVar[tuple[Method, ...]] = ("joint", "coupled", "betting", "independent", "enumerated")

    def __post_init__(self) -> None:
        object.__setattr__(self, "t", check_fraction("threshold", self.t))

    @property
    def options(self) -> dict[str, float]:
        """The arguments of `make_rule` that make this rule."""
        return {"threshold": self.t}

    def check(self, num_labels: int) -> None:
        """Raises `InvalidInputError` unless there is at least one label."""
        check_count("num_labels", num_labels)

    def hits(self, votes: NDArray[Any], num_labels: int) -> Ints:
        """(num_labels,) in how many draws f returned each label; votes: boolean (draws, num_labels)."""
        check_sets(votes, num_labels)
        return np.asarray(votes.sum(axis=0))

    def needed(self, draws: int) -> int:
        """The fewest hits in so many draws that are a fraction of at least t; t is the decimal number as written."""
        return math.ceil(Fraction(repr(self.t)) * draws)

    def returned(self, votes: NDArray[Any], num_labels: int) -> tuple[int, ...]:
        """The labels that g returns according to these draws, most hits first, perhaps none; ties as in `TopK`."""
        hits = self.hits(votes, num_labels)
        return tuple(int(label) for label in np.argsort(-hits, kind="stable") if hits[label] >= self.needed(len(votes)))


Rule = TopK | Threshold


def make_rule(name: str, *, k: int | None = None, k_prime: int | None = None, threshold: float | None = None) -> Rule:
    """The rule of this name; raises `InvalidInputError` unless exactly its own options are given.

    The top-k rule takes k and k_prime, the threshold rule takes threshold, its t.

    >>> make_rule("top-k", k=5, k_prime=3)
    TopK(k=5, k_prime=3)
    >>> make_rule("threshold", threshold=0.5)
    Threshold(t=0.5)
    """
    needed: dict[str, tuple[str, ...]] = {"top-k": ("k", "k_prime"), "threshold": ("threshold",)}
    if name not in needed:
        raise InvalidInputError(unknown_name("rule", str(name), needed))
    takes = " and ".join(needed[name])
    for option, value in {"k": k, "k_prime": k_prime, "threshold": threshold}.items():
        if value is None and option in needed[name]:
            raise InvalidInputError(f"{option} is missing; the {name} rule needs {takes}")
        if value is not None and option not in needed[name]:
            other = "threshold" if name == "top-k" else "top-k"
            raise InvalidInputError(f"{option} belongs to the {other} rule; the {name} rule takes {takes}")
    if threshold is not None:
        return Threshold(threshold)
    assert k is not None
    assert k_prime is not None
    return TopK(k, k_prime)


def default_method(rule: Rule, noise: Noise, draws: int) -> Method:
    """The method that certifies so many draws, fixed beforehand, where none is named: the one that proves most.

    >>> from multiguard.certify import Gaussian, Uniform
    >>> rule = TopK(k=10, k_prime=3)
    >>> default_method(rule, Gaussian(0.5), 1000), default_method(rule, Gaussian(0.5), 50)
    ('coupled', 'joint')
    >>> default_method(rule, Uniform(0.5), 1000)
    'joint'
    """
    if not (isinstance(rule, TopK) and isinstance(noise, Gaussian)):
        return default_label_method(noise)
    most = COUPLED_TO if rule.k_prime == 1 else COUPLED_TO_MANY
    return "coupled" if COUPLED_FROM <= draws <= most else "joint"


def default_label_method(noise: Noise) -> Method:
    """The same for what is claimed of each label alone: there is little to couple, and `joint` is the fastest."""
    return "enumerated" if isinstance(noise, BandAblation) else "joint"


def check_method(method: str, rule: Rule, noise: Noise | str | None = None) -> Method:
    """The method, if the rule has it or a user registered it for the rule, and it is for this noise or its text."""
    known = (*rule.methods, *own_methods(rule.name))
    if method in known and noise is not None:
        _check_noise(method, noise)
    if method in known:
        return method
    raise InvalidInputError(
        f"{unknown_name(f'method of the {rule.name} rule', str(method), known)}; choose one of {', '.join(known)}"
    )


def _check_noise(method: Method, noise: Noise | str) -> None:
    """Raises unless the method is for this noise."""
    own, kind = own_method(method), str(noise).partition(":")[0]
    if own is not None and kind not in own.noises:
        raise InvalidInputError(f"the method {method!r} was registered for {', '.join(own.noises)} noise, not {noise}")
    if own is not None or (method == "enumerated") == (kind == BandAblation.kind):
        return
    if method == "enumerated":
        raise InvalidInputError(f"the method 'enumerated' is for band noise, not {noise}; use another, such as 'joint'")
    raise InvalidInputError(
        f"the method {method!r} needs random draws, and the noise {noise} has every position once; use 'enumerated'"
    )


def check_ranks(k_prime: int, kept: int) -> None:
    """Raises unless the votes keep the k' best labels of each draw."""
    if k_prime > kept:
        raise InvalidInputError(
            f"k_prime = {k_prime}, but these votes keep {kept} labels per draw (k_max); use k_prime <= {kept}, or vote "
            "again with a larger k_max"
        )


def check_sets(votes: NDArray[Any], num_labels: int) -> None:
    """Raises unless the votes are the set of each draw, boolean (draws, num_labels), at least one draw."""
    if votes.dtype != np.bool_ or votes.ndim != 2 or votes.shape[0] < 1:
        ranked = "; ranked votes do not say which labels passed" if np.issubdtype(votes.dtype, np.integer) else ""
        raise InvalidInputError(
            f"the threshold rule needs the set of each draw, boolean (draws, num_labels) with at least one draw, got "
            f"{votes.dtype} {votes.shape}{ranked}"
        )
    if votes.shape[1] != num_labels:
        raise InvalidInputError(f"votes must have one column per label, {num_labels}, got {votes.shape[1]}")
