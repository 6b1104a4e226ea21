"""How many labels stay after a change that an attack found: an estimate, and what is sure of it."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify import Rule, Threshold, TopK, clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.arrays import Floats

# What an attack tries to make small: how many labels of L stay in, or (threshold rule) how many others stay out.
Goal = Literal["in", "out"]


def goals(rule: Rule) -> tuple[Goal, ...]:
    """What can be attacked: the top-k rule returns k labels, so that those that stay in tell of the others, too."""
    return ("in", "out") if isinstance(rule, Threshold) else ("in",)


def judged_size(
    counts: ArrayLike, draws: int, labels: Sequence[int], rule: Rule, goal: Goal, *, beta: float
) -> tuple[int, int]:
    """An estimate of how many labels stay, and a number that with probability at least 1 - beta no more of them stay.

    The probability is over the draws, which must be fresh: neither the change nor anything else was chosen by them.
    In the estimate a label of L whose share of the draws ties with another's, or with t, stays in; so does, of the
    others, one whose share ties with t: it does not stay out.

    Args:
        counts: (c,), in how many draws of the changed image f returned each label.
        draws: How many draws that were.
        labels: L.
        rule: Which smoothed classifier: k, or the threshold t.
        goal: What is counted, labels of L that stay in or others that stay out.
        beta: The probability that the second number may be too small.
    """
    hits = np.asarray(counts)
    shares = hits / draws
    level = beta / (2 * len(hits))
    low, high = clopper_pearson_lower(hits, draws, level), clopper_pearson_upper(hits, draws, level)
    inside = np.zeros(len(hits), dtype=np.bool_)
    inside[list(labels)] = True
    return _staying(shares, shares, inside, rule, goal), _staying(low, high, inside, rule, goal)


def least_at_most(draws: int, own: int, num_labels: int, rule: Rule, goal: Goal, *, beta: float) -> int:
    """No draws, whatever they hit, give a second number of `judged_size` below this one.

    A certificate of no more labels cannot be found broken by so few draws: judging it tests nothing.

    Args:
        draws: How many draws judge.
        own: d, how many labels L has.
        num_labels: c.
        rule: Which smoothed classifier.
        goal: What is counted.
        beta: As in `judged_size`.
    """
    level = beta / (2 * num_labels)
    never = float(clopper_pearson_upper(0, draws, level))
    if isinstance(rule, TopK):
        return _least_among_k(draws, own, num_labels - own, rule, never, level)
    always = float(clopper_pearson_lower(draws, draws, level))
    if goal == "in":
        return 0 if never < rule.t else own
    return 0 if always >= rule.t else num_labels - own


def _least_among_k(draws: int, own: int, others: int, rule: TopK, never: float, level: float) -> int:
    """The e-th of L is out for sure where k - e + 1 others, which share k' hits a draw, are above one never hit."""
    most = min(own, rule.k)
    for size in range(1, most + 1):
        rivals = rule.k - size + 1
        hits = min(draws, rule.k_prime * draws // rivals)
        if rivals <= others and float(clopper_pearson_lower(hits, draws, level)) > never:
            return size - 1
    return most


def _staying(low: Floats, high: Floats, inside: NDArray[np.bool_], rule: Rule, goal: Goal) -> int:
    """The most labels that can stay if each probability lies between `low` and `high`."""
    if isinstance(rule, TopK):
        return _staying_among_k(np.sort(high[inside])[::-1], np.sort(low[~inside])[::-1], rule.k)
    if goal == "in":
        return int(np.sum(high[inside] >= rule.t))
    return int(np.sum(low[~inside] < rule.t))


def _staying_among_k(own: Floats, others: Floats, k: int) -> int:
    """The largest e such that the e-th of our labels is not below the (k - e + 1)-th of the others; both fall.

    Fewer than e of L are among the k of largest probability exactly where k - e + 1 others are above its e-th.
    """
    sizes = range(1, min(len(own), k) + 1)
    return max((e for e in sizes if k - e >= len(others) or own[e - 1] >= others[k - e]), default=0)
