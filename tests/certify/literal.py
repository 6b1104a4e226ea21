"""A slow, literal evaluation of the certificates: the oracle that the fast code is tested against.

Every function follows its formula in docs/theory.md (and Theorem 1 of the paper) loop by loop. Nothing
here is shared with `multiguard.certify`. `r` is always R / sigma.

The bounds can be passed in. With `lower=exact, upper=exact` the same loops run on exact probabilities: give
the probabilities as `counts` with `draws=1`, or, for `joint_size`, give each row of `hits` its probability in
`weights`. The level is then ignored and the floor of a vote count over a layer is dropped.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from math import comb, floor

from scipy.stats import beta, norm

Bound = Callable[[float, float, float], float]
Reach = dict[tuple[tuple[int, ...], int], float]

HALVINGS = 100


# ---------------------------------------------------------------------------------------------- bounds


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


def exact(hits: float, draws: float, level: float) -> float:
    """The probability itself, in place of a bound."""
    return min(1.0, hits / draws)


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


# ------------------------------------------------------------------------- Theorem 1, and what it gives


def theorem_one(
    lows: Sequence[float],
    ups: Sequence[float],
    e: int,
    *,
    k: int,
    k_prime: int,
    r: float,
    second_terms: bool = True,
) -> bool:
    """Whether Theorem 1 certifies size e, from lower bounds on L and upper bounds on the other labels."""
    a = sorted(lows, reverse=True)
    b = sorted(ups, reverse=True)
    d = len(a)
    s = k - e + 1
    if s > len(b):
        return True

    left = down(a[e - 1], r)
    right = up(b[s - 1], r)
    if second_terms:
        cap = k_prime - sum(a)
        for u in range(1, d - e + 2):
            p_a_u = sum(a[rank - 1] for rank in range(e, e + u))
            left = max(left, k_prime / u * down(p_a_u / k_prime, r))
        for v in range(1, s + 1):
            p_b_v = min(sum(b[rank - 1] for rank in range(s - v + 1, s + 1)), cap)
            right = min(right, k_prime / v * up(p_b_v / k_prime, r))
    return left > right


def paper_size(
    counts: Sequence[float],
    labels: Sequence[int],
    *,
    draws: float,
    k: int,
    k_prime: int,
    alpha: float,
    r: float,
    second_terms: bool = True,
    lower: Bound = lower,
    upper: Bound = upper,
) -> int:
    """The certified size of `paper`; of `independent` without the second terms."""
    c = len(counts)
    d = len(labels)
    lows = [lower(counts[i], draws, alpha / c) for i in labels]
    ups = [upper(counts[j], draws, alpha / c) for j in range(c) if j not in labels]
    size = 0
    for e in range(1, min(d, k) + 1):
        if theorem_one(lows, ups, e, k=k, k_prime=k_prime, r=r, second_terms=second_terms):
            size = e
    return size


def jia_size(
    counts: Sequence[float],
    labels: Sequence[int],
    *,
    draws: float,
    k: int,
    k_prime: int,
    alpha: float,
    r: float,
    lower: Bound = lower,
    upper: Bound = upper,
) -> int:
    """The certified size of `jia`: how many labels of L, each on its own, stay among the top k."""
    c = len(counts)
    holding = 0
    for i in labels:
        lows = [lower(counts[i], draws, alpha / c)]
        ups = [upper(counts[j], draws, alpha / c) for j in range(c) if j != i]
        if theorem_one(lows, ups, 1, k=k, k_prime=k_prime, r=r):
            holding += 1
    return min(holding, len(labels), k)


# ----------------------------------------------------------------------------- the joint certificate


def reach_of(rows: Sequence[Sequence[bool]], weights: Sequence[float], labels: Sequence[int], k_prime: int) -> Reach:
    """For every S in L and every l up to k', the draws in which at least l labels of S are hit."""
    reach: Reach = {}
    for u in range(1, len(labels) + 1):
        for S in combinations(labels, u):
            for layer in range(1, k_prime + 1):
                reach[S, layer] = 0
            for row, weight in zip(rows, weights, strict=True):
                H = sum(1 for i in S if row[i])
                for layer in range(1, min(H, k_prime) + 1):
                    reach[S, layer] += weight
    return reach


def left_side(
    reach: Reach,
    labels: Sequence[int],
    e: int,
    *,
    draws: float,
    k_prime: int,
    a_A: float,
    r: float,
    lower: Bound = lower,
) -> float:
    """The minimum over U of the maximum over S in U of A(S)."""
    size_U = len(labels) - e + 1
    smallest = float("inf")
    for U in combinations(labels, size_U):
        largest = 0.0
        for u in range(1, size_U + 1):
            level = a_A / (size_U * comb(size_U, u) * min(k_prime, u))
            for S in combinations(U, u):
                total = 0.0
                for layer in range(1, min(k_prime, u) + 1):
                    total += down(lower(reach[S, layer], draws, level), r)
                largest = max(largest, total / u)
        smallest = min(smallest, largest)
    return smallest


def q_layers(
    reach: Reach,
    labels: Sequence[int],
    s: int,
    *,
    draws: float,
    k_prime: int,
    a_Q: float,
    lower: Bound = lower,
) -> list[float]:
    """Q_1, Q_2, ...: what no set of labels outside L can exceed, layer by layer."""
    layers = min(k_prime, s)
    Q = []
    for layer in range(1, layers + 1):
        if k_prime - layer + 1 > len(labels):
            Q.append(1.0)
        else:
            Q.append(1 - lower(reach[tuple(labels), k_prime - layer + 1], draws, a_Q / layers))
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


def layer_counts(
    rows: Sequence[Sequence[bool]], weights: Sequence[float], T: Sequence[int], layers: int
) -> list[float]:
    """The draws that hit at least 1, 2, ... labels of T, counted one by one."""
    counts = []
    for layer in range(1, layers + 1):
        counts.append(sum(weight for row, weight in zip(rows, weights, strict=True) if sum(row[j] for j in T) >= layer))
    return counts


def eligible_counts(
    rows: Sequence[Sequence[bool]],
    weights: Sequence[float],
    labels: Sequence[int],
    s: int,
    v: int,
    layers: int,
    *,
    eligible: bool = True,
) -> list[float]:
    """At least the draws that hit l labels of T, for the v labels T with the fewest votes of any V outside L, |V| = s.

    Without `eligible`, from the votes of the labels alone.
    """
    votes = {}
    for j in range(len(rows[0])):
        if j not in labels:
            votes[j] = sum(weight for row, weight in zip(rows, weights, strict=True) if row[j])
    ranked = sorted(votes.values(), reverse=True)
    N = sum(ranked[s - v : s])
    behind = [j for j in votes if votes[j] <= ranked[s - v]]
    counts = []
    for layer in range(1, layers + 1):
        deep = []
        for row, weight in zip(rows, weights, strict=True):
            B = sum(1 for j in behind if row[j])
            if layer <= B:
                deep.append((row, weight))
        hitting = sorted((sum(weight for row, weight in deep if row[j]) for j in behind), reverse=True)
        M = sum(hitting[:v])
        counts.append(min(N / layer, sum(weight for _, weight in deep), M / layer) if eligible else N / layer)
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
    upper: Bound = upper,
    whole: bool = True,
) -> float:
    """An upper bound of the mean of p* over T in V, |V| = s, from the votes of its labels and its layers' counts."""
    v, layers = len(votes_T), len(counts)
    level = a_T / (s * comb(s, v) * layers)
    caps = []
    for count, q in zip(counts, Q, strict=False):
        most = floor(count) if whole else count
        caps.append(min(upper(min(draws, most), draws, level), q))
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
                counts = layer_counts(rows, [1] * len(rows), T, min(k_prime, v))
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
    weights: Sequence[float] | None = None,
    upper: Bound = upper,
    eligible: bool = True,
) -> float:
    """The closed form of the right side, for every V at once: for each v the labels ranked s-v+1 to s by votes."""
    draws, whole = (len(rows), True) if weights is None else (1, False)
    weights = [1] * len(rows) if weights is None else weights
    votes = []
    for j in range(len(rows[0])):
        if j not in labels:
            votes.append(sum(weight for row, weight in zip(rows, weights, strict=True) if row[j]))
    b = sorted(votes, reverse=True)
    smallest = float("inf")
    for v in range(1, s + 1):
        T = [b[rank - 1] for rank in range(s - v + 1, s + 1)]
        counts = eligible_counts(rows, weights, labels, s, v, min(k_prime, v), eligible=eligible)
        bound = mean_bound(T, counts, Q, s, draws=draws, a_T=a_T, r=r, upper=upper, whole=whole)
        smallest = min(smallest, bound)
    return smallest


def joint_size(
    hits: Sequence[Sequence[bool]],
    labels: Sequence[int],
    *,
    k: int,
    k_prime: int,
    alpha: float,
    r: float,
    fractions: tuple[float, float, float],
    weights: Sequence[float] | None = None,
    lower: Bound = lower,
    upper: Bound = upper,
    eligible: bool = True,
) -> int:
    """The certified size of `joint`, all subsets of L, from one row of `hits` (c booleans) for each draw.

    With `weights`, row t stands for a share weights[t] of all draws: an exact distribution of the votes.
    """
    rows = [[bool(hit) for hit in row] for row in hits]
    draws = len(rows) if weights is None else 1
    c = len(rows[0])
    d = len(labels)
    reach = reach_of(rows, [1] * len(rows) if weights is None else weights, labels, k_prime)

    size = 0
    uncertain = sum(k - e + 1 <= c - d for e in range(1, min(d, k) + 1))
    for e in range(1, min(d, k) + 1):
        s = k - e + 1
        a_A, a_T, a_Q = (fraction * alpha / max(1, uncertain) for fraction in fractions)
        if s <= c - d:
            A = left_side(reach, labels, e, draws=draws, k_prime=k_prime, a_A=a_A, r=r, lower=lower)
            Q = q_layers(reach, labels, s, draws=draws, k_prime=k_prime, a_Q=a_Q, lower=lower)
            B = right_side_by_ranks(
                rows, labels, Q, s, k_prime=k_prime, a_T=a_T, r=r, weights=weights, upper=upper, eligible=eligible
            )
            if not A > B:
                break
        size = e
    return size


# ------------------------------------------------------------------------------------ a check of the ranks


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
        reach = reach_of(rows, [1] * draws, labels, k_prime)
        Q = q_layers(reach, labels, s, draws=draws, k_prime=k_prime, a_Q=0.01)
        options = {"k_prime": k_prime, "a_T": 0.04, "r": chance.choice([0.0, 0.3, 1.0])}
        one_by_one = right_side(rows, labels, Q, s, **options)
        by_ranks = right_side_by_ranks(rows, labels, Q, s, **options)
        below.append(one_by_one - by_ranks)
        above.append(by_ranks - one_by_one)
        gains.append(right_side_by_ranks(rows, labels, Q, s, **options, eligible=False) - by_ranks)
    return max(below), max(above), max(gains) if min(gains) >= 0 else min(gains)
