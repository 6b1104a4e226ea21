"""The right side of `joint` in loops: every V and every T one by one, and its closed form by ranks.

Nothing here is shared with `multiguard.certify`. `r` is R / sigma.
"""

import random
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import comb, floor

from scipy.stats import beta, norm

HALVINGS = 100


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


def q_layers(
    rows: Sequence[Sequence[bool]],
    labels: Sequence[int],
    s: int,
    *,
    draws: float,
    k_prime: int,
    a_Q: float,
) -> list[float]:
    """Q_1, Q_2, ...: what no set of labels outside L can exceed, layer by layer."""
    layers = min(k_prime, s)
    Q = []
    for layer in range(1, layers + 1):
        if k_prime - layer + 1 > len(labels):
            Q.append(1.0)
        else:
            hits = sum(1 for row in rows if sum(row[i] for i in labels) >= k_prime - layer + 1)
            Q.append(1 - lower(hits, draws, a_Q / layers))
    return Q


def water_filling(caps: Sequence[float], total: float) -> list[float]:
    """The layers min(cap, w), w such that they add up to `total`, or the caps where those add up to less."""
    if sum(caps) <= total:
        return list(caps)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        w = (low + high) / 2
        if sum(min(cap, w) for cap in caps) < total:
            low = w
        else:
            high = w
    return [min(cap, high) for cap in caps]


def layer_counts(rows: Sequence[Sequence[bool]], T: Sequence[int], layers: int) -> list[int]:
    """The draws that hit at least 1, 2, ... labels of T, counted one by one."""
    return [sum(1 for row in rows if sum(row[j] for j in T) >= layer) for layer in range(1, layers + 1)]


def eligible_counts(
    rows: Sequence[Sequence[bool]], labels: Sequence[int], s: int, v: int, layers: int, *, eligible: bool = True
) -> list[float]:
    """At least the draws that hit l labels of T, for the v labels T with the fewest votes of any V outside L, |V| = s.

    Without `eligible`, from the votes of the labels alone.
    """
    votes = {j: sum(row[j] for row in rows) for j in range(len(rows[0])) if j not in labels}
    ranked = sorted(votes.values(), reverse=True)
    N = sum(ranked[s - v : s])
    behind = [j for j in votes if votes[j] <= ranked[s - v]]
    counts = []
    for layer in range(1, layers + 1):
        deep = [row for row in rows if sum(row[j] for j in behind) >= layer]
        M = sum(sorted((sum(row[j] for row in deep) for j in behind), reverse=True)[:v])
        counts.append(min(N / layer, len(deep), M / layer) if eligible else N / layer)
    return counts


def mean_bound(
    votes_T: Sequence[float],
    counts: Sequence[float],
    Q: Sequence[float],
    s: int,
    *,
    draws: float,
    a_T: float,
    r: float,
) -> float:
    """An upper bound of the mean of p* over T in V, |V| = s, from the votes of its labels and its layers' counts."""
    v, layers = len(votes_T), len(counts)
    level = a_T / (s * comb(s, v) * layers)
    caps = []
    for count, q in zip(counts, Q, strict=False):
        caps.append(min(upper(min(draws, floor(count)), draws, level), q))
    p_bars = sum(upper(votes, draws, a_T / s**2) for votes in votes_T)
    return sum(up(t, r) for t in water_filling(caps, p_bars)) / v


def right_side(
    rows: Sequence[Sequence[bool]],
    labels: Sequence[int],
    Q: Sequence[float],
    s: int,
    *,
    k_prime: int,
    a_T: float,
    r: float,
) -> float:
    """The maximum over V of the minimum over T in V, one by one, from the draws that hit 1, 2, ... labels of T."""
    others = [j for j in range(len(rows[0])) if j not in labels]
    largest = 0.0
    for V in combinations(others, s):
        smallest = float("inf")
        for v in range(1, s + 1):
            for T in combinations(V, v):
                counts = layer_counts(rows, T, min(k_prime, v))
                votes = [sum(row[j] for row in rows) for j in T]
                smallest = min(smallest, mean_bound(votes, counts, Q, s, draws=len(rows), a_T=a_T, r=r))
        largest = max(largest, smallest)
    return largest


def right_side_by_ranks(
    rows: Sequence[Sequence[bool]],
    labels: Sequence[int],
    Q: Sequence[float],
    s: int,
    *,
    k_prime: int,
    a_T: float,
    r: float,
    eligible: bool = True,
) -> float:
    """The closed form of the right side, for every V at once: for each v the labels ranked s-v+1 to s by votes."""
    b = sorted((sum(row[j] for row in rows) for j in range(len(rows[0])) if j not in labels), reverse=True)
    smallest = float("inf")
    for v in range(1, s + 1):
        T = [b[rank - 1] for rank in range(s - v + 1, s + 1)]
        counts = eligible_counts(rows, labels, s, v, min(k_prime, v), eligible=eligible)
        bound = mean_bound(T, counts, Q, s, draws=len(rows), a_T=a_T, r=r)
        smallest = min(smallest, bound)
    return smallest


def check_ranks(cases: int = 300, seed: int = 0) -> tuple[float, float, float]:
    """Over random small votes, how far the closed form is below and above the enumeration, at most, and what it gains.

    The gain is the most by which it is below the one from the votes of the labels alone; below 0 if it is ever above.
    """
    chance = random.Random(seed)
    below, above, gains = [], [], []
    for _ in range(cases):
        c, d, k_prime = chance.randint(4, 8), chance.randint(1, 3), chance.randint(1, 3)
        s = chance.randint(1, min(4, c - d))
        draws = chance.choice([10, 50, 200])
        tilt = [chance.random() ** 3 for _ in range(c)]
        rows = []
        for _ in range(draws):
            ranked = sorted(range(c), key=lambda j: -chance.random() * tilt[j])
            rows.append([j in ranked[:k_prime] for j in range(c)])
        labels = sorted(chance.sample(range(c), d))
        Q = q_layers(rows, labels, s, draws=draws, k_prime=k_prime, a_Q=0.01)
        options = {"k_prime": k_prime, "a_T": 0.04, "r": chance.choice([0.0, 0.3, 1.0])}
        one_by_one = right_side(rows, labels, Q, s, **options)
        by_ranks = right_side_by_ranks(rows, labels, Q, s, **options)
        below.append(one_by_one - by_ranks)
        above.append(by_ranks - one_by_one)
        gains.append(right_side_by_ranks(rows, labels, Q, s, **options, eligible=False) - by_ranks)
    return max(below), max(above), max(gains) if min(gains) >= 0 else min(gains)
