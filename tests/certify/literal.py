"""Bounds and counts in loops, one scalar at a time, sharing nothing with `multiguard.certify`; r is R / sigma."""

from collections.abc import Sequence
from functools import cache

from scipy.stats import beta, norm


@cache
def lower(hits: float, draws: float, level: float) -> float:
    """Clopper-Pearson lower bound of a probability: wrong with probability at most `level`."""
    if hits == 0:
        return 0.0
    return float(beta.ppf(level, hits, draws - hits + 1))


@cache
def upper(hits: float, draws: float, level: float) -> float:
    """Clopper-Pearson upper bound of a probability: wrong with probability at most `level`."""
    if hits == draws:
        return 1.0
    return float(beta.isf(level, hits + 1, draws - hits))


@cache
def down(q: float, r: float) -> float:
    """The least probability, after a shift by r, of a region that had probability q."""
    if q <= 0:
        return 0.0
    if q >= 1:
        return 1.0
    return float(norm.cdf(norm.ppf(q) - r))


@cache
def up(q: float, r: float) -> float:
    """The greatest probability, after a shift by r, of a region that had probability q."""
    if q <= 0:
        return 0.0
    if q >= 1:
        return 1.0
    return float(norm.cdf(norm.ppf(q) + r))


def layer_counts(rows: Sequence[Sequence[bool]], T: Sequence[int], layers: int) -> list[int]:
    """The draws that hit at least 1, 2, ... labels of T, counted one by one."""
    return [sum(1 for row in rows if sum(row[j] for j in T) >= layer) for layer in range(1, layers + 1)]


def eligible_counts(rows: Sequence[Sequence[bool]], labels: Sequence[int], s: int, v: int, layers: int) -> list[float]:
    """At least the draws that hit l labels of T, the v labels with the fewest votes of any V outside L, |V| = s."""
    votes = {j: sum(row[j] for row in rows) for j in range(len(rows[0])) if j not in labels}
    ranked = sorted(votes.values(), reverse=True)
    N = sum(ranked[s - v : s])
    behind = [j for j in votes if votes[j] <= ranked[s - v]]
    counts = []
    for layer in range(1, layers + 1):
        deep = [row for row in rows if sum(row[j] for j in behind) >= layer]
        M = sum(sorted((sum(row[j] for row in deep) for j in behind), reverse=True)[:v])
        counts.append(min(N / layer, len(deep), M / layer))
    return counts
