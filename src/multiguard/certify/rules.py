"""The smoothed classifier g: which labels it returns, given how often the base classifier f returns each label.

With p_i the probability that f returns label i for a noisy copy of the image, g returns the k labels of largest p_i
(`TopK`) or every label with p_i >= t (`Threshold`).
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.ablation import BandAblation
from multiguard.certify.arguments import Bools, Floats, Ints, check_count, check_fraction
from multiguard.certify.noise import NOISES, Noise
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name
from multiguard.io.rounding import plain

RuleName = Literal["top-k", "threshold"]
RULES: tuple[RuleName, ...] = get_args(RuleName)
Method = str  # one of `METHODS`, or a name given to `register_method`
# The numbers of draws for which `coupled` proves more than `joint` on the votes of real images (docs/theory.md 4):
# the fewest, and the most for larger k' and for k' = 1.
COUPLED_FROM, COUPLED_TO = 80, (100_000, 50_000)
_DEFAULT_K, _DEFAULT_THRESHOLD = 5, 0.5
METHODS: tuple[Method, ...] = ("joint", "coupled", "betting", "paper", "independent", "jia", "enumerated")


class _Rule(ABC):
    """What both rules have: `name`, `methods`, k, k', t, and whether votes are `ranked` labels or sets."""

    name: ClassVar[RuleName]
    methods: ClassVar[tuple[Method, ...]] = METHODS
    has_ceilings: ClassVar[bool]
    k: int | None
    k_prime: int | None
    t: float | None

    @property
    def options(self) -> dict[str, float]:
        """The arguments of `make_rule` that make this rule."""
        given = {"k": self.k, "threshold": self.t, "k_prime": self.k_prime}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def words(self) -> dict[str, str]:
        """Each option in the letters of the paper, for people."""
        letters = {"k_prime": "k\u2032", "k": "k", "threshold": "t"}
        return {
            name: f"{letter} = {plain(self.options[name])}" for name, letter in letters.items() if name in self.options
        }

    @property
    def text(self) -> str:
        """The options in the letters of the paper, for a terminal."""
        return ", ".join(self.words.values()).replace("\u2032", "'")

    @property
    def ranked(self) -> bool:
        """Whether votes are ranked labels; if not, they are sets."""
        return self.k_prime is not None

    def sizes(self, num_true: int) -> int:
        """How many labels of L can be returned, and so how many claims there are: d, but at most k."""
        return num_true if self.k is None else min(num_true, self.k)

    def most_returned(self, num_labels: int) -> int:
        """The most labels that g returns, whatever the image: k, or k' / t, as the probabilities sum to k'.

        t is the double or the decimal number as written: the smaller of the two, so that both have no more.
        """
        if self.t is None or self.k_prime is None:
            return min(num_labels, self.k or num_labels)
        return min(num_labels, math.floor(self.k_prime / min(Fraction(self.t), Fraction(repr(self.t)))))

    @abstractmethod
    def needed(self, draws: int) -> int:
        """The fewest hits of a label that is returned."""

    def check(self, num_labels: int) -> None:
        """Raises `InvalidInputError` unless there are at least k and k' labels."""
        check_count("num_labels", num_labels)
        for name in ("k", "k_prime"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, num_labels)

    def check_ranks(self, kept: int | None) -> None:
        """Raises `InvalidInputError` if votes keep fewer labels per draw than k'; None: they do not say."""
        if kept is not None and self.k_prime is not None and self.k_prime > kept:
            raise InvalidInputError(
                f"k_prime = {self.k_prime}, but these votes keep {kept} labels per draw (k_max); use k_prime <= "
                f"{kept}, or vote again with a larger k_max"
            )

    def sets(self, votes: NDArray[Any], num_labels: int) -> Bools:
        """(draws, num_labels) the labels of each draw, from boolean votes, or the k' best of ranked ones."""
        if self.k_prime is None and votes.dtype != np.bool_:
            raise InvalidInputError(
                f"the threshold rule needs the set of each draw, boolean (draws, num_labels), got {votes.dtype} "
                f"{votes.shape}; of ranked votes give k_prime, too"
            )
        hits = votes if votes.dtype == np.bool_ else self._marked(votes, num_labels)
        if hits.ndim != 2 or hits.shape[0] < 1 or hits.shape[1] != num_labels:
            raise InvalidInputError(
                f"hits must be boolean (draws, {num_labels}), one column per label and at least one draw, got shape "
                f"{hits.shape}"
            )
        counts = hits.sum(axis=1)
        if self.k_prime is not None and len(wrong := np.flatnonzero(counts != self.k_prime)):
            raise InvalidInputError(
                f"every draw must hit exactly k_prime = {self.k_prime} different labels, but row {wrong[0]} has "
                f"{counts[wrong[0]]}"
            )
        return hits

    def _marked(self, ranked: NDArray[Any], num_labels: int) -> Bools:
        if ranked.ndim != 2 or not np.issubdtype(ranked.dtype, np.integer):
            raise InvalidInputError(f"ranked votes must be integers (draws, K'), got {ranked.dtype} {ranked.shape}")
        self.check_ranks(ranked.shape[1])
        used = ranked[:, : self.k_prime].astype(np.int64)
        if len(used) and not 0 <= used.min() <= used.max() < num_labels:
            raise InvalidInputError(
                f"ranked votes must be labels in 0..{num_labels - 1}, got {used.min()}..{used.max()}"
            )
        hits = np.zeros((len(used), num_labels), dtype=np.bool_)
        np.put_along_axis(hits, used, True, axis=1)
        return hits

    def hits(self, votes: NDArray[Any], num_labels: int) -> Ints:
        """(num_labels,) in how many draws f returned each label; votes as for `sets`."""
        return np.asarray(self.sets(votes, num_labels).sum(axis=0))

    def returned(self, votes: NDArray[Any], num_labels: int) -> tuple[int, ...]:
        """The labels that g returns by these draws, most hits first, ties by index; none without a hit."""
        hits, needed = self.hits(votes, num_labels), self.needed(len(votes))
        order = np.argsort(-hits, kind="stable")[: self.k]
        return tuple(int(label) for label in order if hits[label] >= needed)

    def returned_once(self, votes: NDArray[Any]) -> tuple[int, ...] | None:
        """The labels of the one draw without noise, best first: k, k' or the set; None where the votes keep fewer."""
        if (count := self.k or self.k_prime) is None:
            return tuple(np.flatnonzero(votes[0]).tolist())
        return tuple(votes[0, :count].tolist()) if votes.shape[1] >= count else None

    def returned_by(self, scores: NDArray[Any], limit: float | None = None) -> Bools:
        """(rows, c) the labels of the k or k' largest scores, ties by index; or of at least t, or `limit`."""
        if (count := self.k or self.k_prime) is None:
            return np.asarray(scores >= (self.t if limit is None else limit))
        marked = np.zeros(scores.shape, dtype=np.bool_)
        np.put_along_axis(marked, np.argsort(-scores, axis=1, kind="stable")[:, :count], True, axis=1)
        return marked


@dataclass(frozen=True)
class TopK(_Rule):
    """g returns the k labels that f returns most often; f returns k_prime labels per draw.

    Attributes:
        k: How many labels g returns; None for other rules, and so are k_prime and t.
        k_prime: How many labels f returns, k'; by default half of k, rounded up.
        has_ceilings: Whether labels outside L are claimed about, too (`Radii.false`).

    >>> rule = TopK(k=2, k_prime=1)
    >>> ranked = np.array([[3, 0], [3, 1], [1, 3]])  # three draws, the best label first
    >>> rule.hits(ranked, num_labels=4)
    array([0, 1, 0, 2])
    >>> rule.returned(ranked, num_labels=4)
    (3, 1)
    """

    k: int
    k_prime: int = None  # type: ignore[assignment]
    name: ClassVar[RuleName] = "top-k"
    has_ceilings: ClassVar[bool] = False
    t = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count("k", self.k))
        k_prime: int | None = self.k_prime
        object.__setattr__(self, "k_prime", (self.k + 1) // 2 if k_prime is None else check_count("k_prime", k_prime))

    def needed(self, draws: int) -> int:  # noqa: D102
        return 1

    def most_staying(self, low: Floats, high: Floats, inside: Bools) -> int:
        """The most labels of L, those `inside`, that can be returned if each probability is from `low` to `high`.

        Fewer than e of L are among the k most probable exactly where k - e + 1 others are above its e-th.
        """
        ours, others = np.sort(high[inside])[::-1], np.sort(low[~inside])[::-1]
        sizes = range(1, self.sizes(len(ours)) + 1)
        return max((e for e in sizes if self.k - e >= len(others) or ours[e - 1] >= others[self.k - e]), default=0)


@dataclass(frozen=True)
class Threshold(_Rule):
    """g returns every label that f returns with probability at least t; f returns k_prime labels per draw, or any set.

    Attributes:
        t: The probability, strictly between 0 and 1.
        k_prime: How many labels f returns, k', of ranked votes; None for votes that are sets of any size. With k' at
            most k' / t labels are returned, whatever the image.

    >>> rule = Threshold(t=0.5)
    >>> sets = np.array([[True, True, False], [False, True, False]])  # two draws, three labels
    >>> rule.hits(sets, num_labels=3)
    array([1, 2, 0])
    >>> rule.returned(sets, num_labels=3)
    (1, 0)
    >>> Threshold(t=0.5, k_prime=1).returned(np.array([[2, 0], [2, 1], [0, 2]]), num_labels=3)  # the best label first
    (2,)
    """

    t: float
    k_prime: int | None = None
    name: ClassVar[RuleName] = "threshold"
    methods: ClassVar[tuple[Method, ...]] = ("joint", "coupled", "betting", "independent", "enumerated")
    has_ceilings: ClassVar[bool] = True
    k = None

    def __repr__(self) -> str:
        return (
            f"Threshold(t={self.t!r})" if self.k_prime is None else f"Threshold(t={self.t!r}, k_prime={self.k_prime})"
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "t", check_fraction("threshold", self.t))
        if self.k_prime is not None:
            object.__setattr__(self, "k_prime", check_count("k_prime", self.k_prime))

    def hits_at_most(self, labels: int) -> int:
        """How many labels of a set of this size a draw can hit."""
        return labels if self.k_prime is None else min(labels, self.k_prime)

    def needed(self, draws: int) -> int:
        """The fewest hits of all draws that are a fraction of at least t, the decimal number as written."""
        return math.ceil(Fraction(repr(self.t)) * draws)

    def most_staying(self, low: Floats, high: Floats, inside: Bools) -> int:
        """The most labels of L, those `inside`, that can be returned if each probability is from `low` to `high`."""
        return int(np.sum(high[inside] >= self.t))

    def most_out(self, low: Floats, inside: Bools) -> int:
        """The most labels outside L that can stay out if each probability is at least `low`."""
        return int(np.sum(low[~inside] < self.t))


Rule = TopK | Threshold


def make_rule(name: str, *, k: int | None = None, k_prime: int | None = None, threshold: float | None = None) -> Rule:
    """The rule of this name; raises `InvalidInputError` unless exactly its own options are given.

    The top-k rule takes k and k_prime, the threshold rule takes threshold, its t, and k_prime for ranked votes.

    >>> make_rule("top-k", k=5, k_prime=3), make_rule("threshold", threshold=0.25, k_prime=4)
    (TopK(k=5, k_prime=3), Threshold(t=0.25, k_prime=4))
    """
    needed = {"top-k": ("k", "k_prime"), "threshold": ("threshold",)}
    if name not in needed:
        raise InvalidInputError(unknown_name("rule", str(name), needed))
    takes, other = " and ".join(needed[name]), "top-k" if name == "threshold" else "threshold"
    for option, value in {"k": k, "k_prime": k_prime, "threshold": threshold}.items():
        if value is None and option in needed[name]:
            raise InvalidInputError(f"{option} is missing; the {name} rule needs {takes}")
        if value is not None and option not in (*needed[name], "k_prime"):
            raise InvalidInputError(f"{option} belongs to the {other} rule; the {name} rule takes {takes}")
    return Threshold(threshold, k_prime) if threshold is not None else TopK(k, k_prime)  # type: ignore[arg-type]


def default_rule(
    name: str, num_labels: int, *, k: int | None = None, k_prime: int | None = None, threshold: float | None = None
) -> Rule:
    """The rule of this name for this number of labels; what is left open is k = 5, k' half of k and t = 0.5.

    >>> default_rule("top-k", 10), default_rule("top-k", 3), default_rule("threshold", 10)
    (TopK(k=5, k_prime=3), TopK(k=3, k_prime=2), Threshold(t=0.5))
    """
    if name == "top-k":
        k = min(_DEFAULT_K, num_labels) if k is None else k
        k_prime = (k + 1) // 2 if k_prime is None else k_prime
    elif threshold is None:
        threshold = _DEFAULT_THRESHOLD
    return make_rule(name, k=k, k_prime=k_prime, threshold=threshold)


def default_method(rule: Rule, noise: Noise, draws: int) -> Method:
    """The method that proves most from this number of draws, fixed beforehand; the default.

    >>> from multiguard.certify import Gaussian
    >>> rule = TopK(k=10, k_prime=3)
    >>> default_method(rule, Gaussian(0.5), 1000), default_method(rule, Gaussian(0.5), 50)
    ('coupled', 'joint')
    """
    if rule.has_ceilings or noise.sigma is None:
        return default_label_method(noise)
    return "coupled" if COUPLED_FROM <= draws <= COUPLED_TO[rule.k_prime == 1] else "joint"


def default_label_method(noise: Noise) -> Method:
    """The default method of single labels: there is little to couple, and `joint` is the fastest."""
    return "enumerated" if noise.enumerated else "joint"


def check_method(method: str, rule: Rule, noise: Noise | str | None = None) -> Method:
    """The method, if the rule has it or a user registered it for the rule, and it is for this noise or its text."""
    known = (*rule.methods, *(name for name, own in _OWN.items() if rule.name in own.rules))
    if method not in known:
        raise InvalidInputError(
            f"{unknown_name(f'method of the {rule.name} rule', str(method), known)}; choose one of {', '.join(known)}"
        )
    if noise is None:
        return method
    own, kind = own_method(method), str(noise).partition(":")[0]
    if own is not None and kind not in own.noises:
        raise InvalidInputError(f"the method {method!r} was registered for {', '.join(own.noises)} noise, not {noise}")
    if own is None and (method == "enumerated") != (kind == BandAblation.kind):
        raise InvalidInputError(
            f"the method 'enumerated' is for band noise, not {noise}; use another, such as 'joint'"
            if method == "enumerated"
            else f"the method {method!r} needs random draws, and the noise {noise} has every position once; use "
            "'enumerated'"
        )
    return method


MethodFunction = Callable[..., Any]
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")


@dataclass(frozen=True)
class OwnMethod:
    """A method that a user registered."""

    name: str
    function: MethodFunction
    rules: tuple[RuleName, ...]
    noises: tuple[str, ...]

    def solve(
        self, hits: Bools, labels: Sequence[int], rule: Rule, noise: Noise, alpha: float
    ) -> tuple[Floats, Floats | None]:
        """The radii of one image, in the form that all methods have; anything else raises `InvalidInputError`."""
        found = self.function(hits.copy(), tuple(labels), rule, noise=noise, alpha=alpha)
        true, false = found if rule.has_ceilings else (found, None)
        # A larger e is a stronger claim, and a smaller m: the running minimum claims no more than was returned.
        whole = np.floor if noise.whole else np.positive
        floors = whole(np.minimum.accumulate(self._checked(true, rule.sizes(len(labels)), "e = 1, 2, ...")))
        if not rule.has_ceilings:
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
    Only the form of what it returns is checked, and adaptive votes are refused. The name is known in this process:
    files that name it are read only after it has been registered again.

    Args:
        name: Lower-case letters, digits, - and _; no name of a built-in method. A name of yours may be registered
            again, and then means the new function.
        function: It takes `hits`, boolean (draws, c), the indices of the `labels` to protect, the `rule`, `noise` and
            `alpha`. For `TopK` it returns (min(d, k),), the radii up to which at least e = 1, 2, ... labels are
            returned; for `Threshold` a pair of (d,) such radii and (c - d,) radii up to which at most m = 0, 1, ...
            other labels are. -inf where nothing is proved.
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
    _OWN[name] = OwnMethod(name, function, tuple(rules), tuple(noises))


def own_method(name: str) -> OwnMethod | None:
    """The registered method of this name; None for a built-in or an unknown one."""
    return _OWN.get(name)
