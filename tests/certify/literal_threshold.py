"""A slow, literal evaluation of the floors and ceilings of g_t: every U, every V, every subset, one by one.

Nothing here is shared with `multiguard.certify`. `r` is always R / sigma. Bounds can be passed in as in `literal.py`.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb

from tests.certify.literal import Bound, left_side, lower, reach_of, up, upper

Row = Sequence[bool]


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
    proved = 0
    for e in range(1, len(labels) + 1):
        kept = left_side(reach, labels, e, draws=draws, k_prime=len(labels), a_A=alpha / len(labels), r=r, lower=lower)
        if kept > threshold:
            proved = e
    return proved


def mean_over(
    T: Sequence[int],
    rows: Sequence[Row],
    weights: Sequence[float],
    *,
    size_V: int,
    alpha: float,
    draws: float,
    r: float,
    upper: Bound,
) -> float:
    """An upper bound of the mean of p* over T in V, from the draws that hit at least 1, 2, ... labels of T."""
    v = len(T)
    level = alpha / (size_V * comb(size_V, v) * v)
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
    for m in range(len(others)):
        alpha_m = alpha / ((m + 1) * (m + 2))
        worst = 0.0
        for V in combinations(others, m + 1):
            best = float("inf")
            if set(V) <= set(most_hit):
                options = {"size_V": m + 1, "alpha": alpha_m, "draws": draws, "r": r, "upper": upper}
                for v in range(1, m + 2):
                    for T in combinations(V, v):
                        best = min(best, mean_over(T, rows, weights, **options))
            else:
                level = alpha_m / (m + 1) ** (2 if m < suspects else 1)
                for j in V:
                    if j not in most_hit:
                        best = min(best, up(upper(mass[j], draws, level), r))
            worst = max(worst, best)
        if worst < threshold:
            return m
    return len(others)
