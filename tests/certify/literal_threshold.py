"""A slow, literal evaluation of the floors and ceilings of g_t: every U, every V, every subset, one by one.

Nothing here is shared with `multiguard.certify`. `r` is always R / sigma. Bounds can be passed in as in `literal.py`.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import comb

from tests.certify.literal import Bound, Reach, down, lower, reach_of, up, upper

Row = Sequence[bool]

# What the bounds of single labels, which serve every floor or every ceiling, have of its alpha.
SINGLES_IN, SINGLES_OUT = Fraction(9, 10), Fraction(7, 10)


def level_in(size_S: int, size_U: int, num_true: int) -> Fraction:
    """The part of the floors' alpha that one bound on one S in U has."""
    if num_true == 1:
        return Fraction(1)
    if size_S == 1:
        return SINGLES_IN / num_true
    one_floor = (1 - SINGLES_IN) / (num_true - 1)
    return one_floor / ((size_U - 1) * comb(size_U, size_S) * size_S)


def level_out(size_T: int, size_V: int, num_others: int, suspects: int) -> Fraction:
    """The part of the ceilings' alpha that one bound on one T in V has."""
    if num_others == 1:
        return Fraction(1)
    each = SINGLES_OUT / num_others
    last = min(suspects, num_others)
    if size_V > last:
        return each
    whole = sum(Fraction(1, s * (s + 1)) for s in range(1, last + 1))
    one_ceiling = (1 - SINGLES_OUT) / (size_V * (size_V + 1)) / whole
    own = one_ceiling / (size_V * comb(size_V, size_T) * size_T)
    return max(own, each) if size_T == 1 else own


def best_in(
    U: Sequence[int], reach: Reach, num_true: int, *, alpha: float, draws: float, r: float, lower: Bound
) -> float:
    """The largest lower bound of the mean of p* over some S in U."""
    best = 0.0
    for u in range(1, len(U) + 1):
        level = alpha * float(level_in(u, len(U), num_true))
        for S in combinations(U, u):
            total = 0.0
            for layer in range(1, u + 1):
                total += down(lower(reach[S, layer], draws, level), r)
            best = max(best, total / u)
    return best


def floor_of(
    rows: Sequence[Row],
    labels: Sequence[int],
    *,
    threshold: float,
    alpha: float,
    r: float,
    weights: Sequence[float] | None = None,
    lower: Bound = lower,
) -> int:
    """The most labels of L that are proved to stay in; alpha is that of all floors."""
    draws, weights = (len(rows), [1] * len(rows)) if weights is None else (1, weights)
    reach = reach_of(rows, weights, labels, len(labels))
    options = {"alpha": alpha, "draws": draws, "r": r, "lower": lower}
    proved = 0
    for e in range(1, len(labels) + 1):
        out = combinations(labels, len(labels) - e + 1)
        if all(best_in(U, reach, len(labels), **options) > threshold for U in out):
            proved = e
    return proved


def mean_over(
    T: Sequence[int],
    rows: Sequence[Row],
    weights: Sequence[float],
    *,
    level: float,
    draws: float,
    r: float,
    upper: Bound,
) -> float:
    """An upper bound of the mean of p* over T, from the draws that hit at least 1, 2, ... labels of T."""
    v = len(T)
    total = 0.0
    for layer in range(1, v + 1):
        mass = sum(weight for row, weight in zip(rows, weights, strict=True) if sum(row[j] for j in T) >= layer)
        total += up(upper(mass, draws, level), r)
    return total / v


def ceiling_of(
    rows: Sequence[Row],
    labels: Sequence[int],
    *,
    threshold: float,
    alpha: float,
    r: float,
    suspects: int,
    weights: Sequence[float] | None = None,
    upper: Bound = upper,
) -> int:
    """The fewest labels outside L that are proved to be the most that come in; alpha is that of all ceilings.

    Every subset of V is used where V lies among the `suspects` most hit labels, else only its labels beside them.
    """
    draws, weights = (len(rows), [1] * len(rows)) if weights is None else (1, weights)
    others = [j for j in range(len(rows[0])) if j not in labels]
    mass = {j: sum(weight for row, weight in zip(rows, weights, strict=True) if row[j]) for j in others}
    most_hit = sorted(others, key=lambda j: -mass[j])[:suspects]
    options = {"draws": draws, "r": r, "upper": upper}
    for m in range(len(others)):
        part = [level_out(v, m + 1, len(others), suspects) for v in range(1, m + 2)]
        worst = 0.0
        for V in combinations(others, m + 1):
            best = float("inf")
            if set(V) <= set(most_hit):
                for v in range(1, m + 2):
                    for T in combinations(V, v):
                        best = min(best, mean_over(T, rows, weights, level=alpha * float(part[v - 1]), **options))
            else:
                for j in V:
                    if j not in most_hit:
                        best = min(best, up(upper(mass[j], draws, alpha * float(part[0])), r))
            worst = max(worst, best)
        if worst < threshold:
            return m
    return len(others)
