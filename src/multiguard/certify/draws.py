"""The draws of one image in their order, as far as a bet can tell them apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import Bools, Floats, Ints, check_labels
from multiguard.certify.rules import Rule, Threshold, TopK, check_ranks, check_sets
from multiguard.errors import InvalidInputError

# How many labels a test of the order looks at, and how often betting may refuse independent draws.
_LABELS_IN_ORDER, _REFUSED = 10, 1e-9


@dataclass(frozen=True, eq=False)
class Draws:
    """Which labels of L each draw hit, and which others.

    Attributes:
        patterns: (patterns, d) the different sets of labels of L that draws hit.
        pattern: (draws,) which of them each draw hit.
        draw: (hits,) for every hit outside L its draw, not falling.
        rival: (hits,) and its label, as its place among the labels outside L.
        rivals: c - d, the number of labels outside L.
    """

    patterns: Bools
    pattern: Ints
    draw: Ints
    rival: Ints
    rivals: int

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.pattern)

    @property
    def num_true(self) -> int:
        """d, the number of labels in L."""
        return int(self.patterns.shape[1])


def read_draws(votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int) -> Draws:
    """The draws of one image, after the checks of `count_votes`; L may be empty."""
    given, true = np.atleast_1d(votes), check_labels(labels, num_labels, allow_none=True)
    checked = check_votes(given, rule, num_labels)
    place = np.cumsum(np.bincount(true, minlength=num_labels) == 0) - 1
    place[true] = -1 - np.arange(len(true))
    draw, label = _places(checked, rule)
    hit = place[label]
    inside = hit < 0
    on_labels = np.zeros((len(checked), len(true)), dtype=np.bool_)
    on_labels[draw[inside], -1 - hit[inside]] = True
    patterns, pattern = _distinct_rows(on_labels)
    return Draws(patterns, pattern, draw[~inside], hit[~inside], num_labels - len(true))


def _places(checked: NDArray[Any], rule: Rule) -> tuple[Ints, Ints]:
    """(hits,) the draw of every hit, not falling, and its label."""
    if isinstance(rule, TopK):
        return np.repeat(np.arange(len(checked)), rule.k_prime), checked[:, : rule.k_prime].ravel()
    draw, label = np.nonzero(checked)
    return draw, label


def read_hits(votes: ArrayLike, rule: Rule, num_labels: int) -> Bools:
    """(draws, num_labels) whether each draw hit each label, after the checks of `check_votes`."""
    checked = check_votes(np.atleast_1d(votes), rule, num_labels)
    if isinstance(rule, TopK):
        return hits_from_ranked(checked, k_prime=rule.k_prime, num_labels=num_labels)
    return checked


def check_votes(votes: NDArray[Any], rule: Rule, num_labels: int) -> NDArray[Any]:
    """The votes as the rule needs them: ranked labels (draws, >= k'), or the set of each draw (draws, num_labels)."""
    if isinstance(rule, Threshold):
        check_sets(votes, num_labels)
        return votes
    if votes.dtype == np.bool_:
        return _ranked_from_hits(votes, rule.k_prime, num_labels)
    return check_ranked(votes, k_prime=rule.k_prime, num_labels=num_labels)


def hits_from_ranked(ranked: ArrayLike, *, k_prime: int, num_labels: int) -> Bools:
    """The boolean hits (draws, num_labels) of ranked votes: each row marks the first k' labels of its draw.

    Args:
        ranked: (draws, K') integers, the labels of each draw from the highest score down, K' >= k'.
        k_prime: How many labels the base classifier returns, 1 <= k' <= K'.
        num_labels: c, the number of labels there are.

    >>> hits_from_ranked([[2, 0], [1, 2]], k_prime=1, num_labels=3).astype(int)
    array([[0, 0, 1],
           [0, 1, 0]])
    """
    votes = check_ranked(ranked, k_prime=k_prime, num_labels=num_labels)
    hits = np.zeros((votes.shape[0], num_labels), dtype=np.bool_)
    np.put_along_axis(hits, votes[:, :k_prime].astype(np.intp), True, axis=1)
    return hits


def check_ranked(ranked: ArrayLike, *, k_prime: int, num_labels: int) -> NDArray[np.integer]:
    """The ranked votes as an array; raises unless the first k' entries of each row are different labels."""
    votes = np.asarray(ranked)
    if votes.ndim != 2 or not np.issubdtype(votes.dtype, np.integer):
        raise InvalidInputError(f"ranked votes must be integers (draws, K'), got {votes.dtype} {votes.shape}")
    if votes.shape[0] < 1:
        raise InvalidInputError("ranked votes hold no draws; at least one is needed to prove anything")
    check_ranks(k_prime, votes.shape[1])
    used = votes[:, :k_prime]
    if used.min() < 0 or used.max() >= num_labels:
        raise InvalidInputError(f"ranked votes must be labels in 0..{num_labels - 1}, got {used.min()}..{used.max()}")
    ordered = np.sort(used, axis=1)
    if np.any(ordered[:, 1:] == ordered[:, :-1]):
        raise InvalidInputError("ranked votes name a label twice in one draw; a draw returns k' different labels")
    return votes


def _ranked_from_hits(hits: NDArray[Any], k_prime: int, num_labels: int) -> NDArray[np.integer]:
    """(draws, k') the labels of each row of hits; raises unless every row has exactly k'."""
    if hits.ndim != 2 or hits.shape[0] < 1 or hits.shape[1] != num_labels:
        raise InvalidInputError(
            f"hits must be boolean (draws, {num_labels}), one column per label and at least one draw, got shape "
            f"{hits.shape}"
        )
    wrong = np.flatnonzero(hits.sum(axis=1) != k_prime)
    if len(wrong):
        row, count = int(wrong[0]), int(hits[wrong[0]].sum())
        raise InvalidInputError(f"every draw must hit exactly k_prime = {k_prime} labels, but row {row} has {count}")
    return np.nonzero(hits)[1].reshape(-1, k_prime)


def fixed_permutation(count: int) -> Ints:
    """(count,) a permutation that depends on the number of draws alone.

    >>> fixed_permutation(6)
    array([1, 2, 3, 0, 5, 4])
    """
    order: Ints = np.argsort(np.random.PCG64(count).random_raw(count), kind="stable")
    return order


def check_order(votes: NDArray[Any], rule: Rule, num_labels: int) -> None:
    """Raises `InvalidInputError` if the rows cannot be independent draws in the order in which they were drawn.

    Independent draws are refused with a probability of at most 1e-9.
    """
    if (found := out_of_order(votes, rule, num_labels, _REFUSED)) is not None:
        raise InvalidInputError(
            f"the rows of votes are not in the order in which they were drawn: label {found[0]} has {found[1]} hits in "
            f"{found[2]} runs, which independent draws hardly ever have; the methods 'coupled' and 'betting' need "
            "every draw in its place, so for sorted or counted votes use 'joint'"
        )


def out_of_order(votes: NDArray[Any], rule: Rule, num_labels: int, level: float) -> tuple[int, int, int] | None:
    """A label with its hits and runs that show that rows are not independent draws in their order; None without one.

    The labels with the most even counts each have a number of runs, rows in a row that all hit it or all miss it. Every
    order of independent rows is equally likely, so given the rows the number of runs has a known distribution. Far
    too few runs (sorted rows) or too many (rows in rotation) are found; in independent draws, whatever rows they
    are, with a probability of at most `level`.
    """
    checked = check_votes(votes, rule, num_labels)
    draw, label_hit = _places(checked, rule)
    counts = np.bincount(label_hit, minlength=num_labels)
    evenest = np.argsort(-np.minimum(counts, len(checked) - counts), kind="stable")[:_LABELS_IN_ORDER]
    for label in evenest.tolist():
        hits = np.zeros(len(checked), dtype=np.bool_)
        hits[draw[label_hit == label]] = True
        runs = 1 + int(np.count_nonzero(hits[1:] != hits[:-1]))
        if _runs_tail(runs, int(counts[label]), len(hits)) < level / len(evenest):
            return label, int(counts[label]), runs
    return None


def _runs_tail(runs: int, hits: int, draws: int) -> float:
    """Twice the smaller of the probabilities of at most and of at least so many runs, if all orders are alike."""
    misses = draws - hits
    if min(hits, misses) == 0:
        return 1.0
    chance = _run_chances(hits, misses)
    return float(2 * min(chance[: runs + 1].sum(), chance[runs:].sum()))


def _run_chances(hits: int, misses: int) -> Floats:
    """(runs,) the probability of 0, 1, 2, ... runs of so many hits and misses in random order (Wald and Wolfowitz)."""
    runs = np.arange(2 * min(hits, misses) + 2)
    more, fewer = (runs + 1) // 2, runs // 2
    ways = np.logaddexp(
        _log_choose(hits - 1, more - 1) + _log_choose(misses - 1, fewer - 1),
        _log_choose(hits - 1, fewer - 1) + _log_choose(misses - 1, more - 1),
    )
    chances: Floats = np.exp(ways - _log_choose(hits + misses, np.asarray(hits)))
    return chances


def _log_choose(n: int, k: Ints) -> Floats:
    """The logarithms of binomial coefficients; -inf where k is not in 0..n."""
    inside = (k >= 0) & (k <= n)
    chosen = np.where(inside, k, 0)
    log_factorial = scipy.special.gammaln
    ways = log_factorial(n + 1) - log_factorial(chosen + 1) - log_factorial(n - chosen + 1)
    return np.where(inside, ways, -np.inf)


def _distinct_rows(rows: Bools) -> tuple[Bools, Ints]:
    """The different rows of a boolean array, and which of them each row is."""
    packed: NDArray[Any] = np.packbits(rows, axis=1)
    if packed.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), np.int64)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))[:, 0]
    if packed.shape[1] == 1:
        keys = packed[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], which
