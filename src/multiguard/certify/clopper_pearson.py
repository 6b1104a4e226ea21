"""Exact one-sided confidence bounds for a probability, from how often its event was seen."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv

from multiguard.certify.types import Floats
from multiguard.errors import InvalidInputError

# SciPy's inverse of the incomplete beta function is mostly right to the last digit, but now and then it stops short, on
# the side that would claim too much. So a bound is sought for a little less than alpha, and what the distribution
# function itself does not confirm at half that distance is moved on until it does. Below levels of 1e-107 it may find
# nothing (NaN) where the bound is within 1e-29 of 0 or 1; the bound is then that end itself.
_SLACK = 1e-7
_FIRST_MOVE = 1e-12
_MOST_DRAWS = 10**8
# Below 1e-243 SciPy's distribution function may come out as 0 and would confirm anything; a bound at a
# level that comes near this is 0 or 1, which never fails.
_LEAST_LEVEL = 1e-220


def clopper_pearson_lower(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at least this.

    The bound is the alpha-quantile of Beta(hits, draws - hits + 1), and 0 where nothing was hit or where alpha is below
    1e-220, too small to be computed with.

    Args:
        hits: In how many draws the event was seen.
        draws: The number of independent draws.
        alpha: The probability that the bound may fail, in (0, 1).

    All three broadcast against each other; the result has their common shape.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    a, b = np.maximum(hits, 1), draws - hits + 1
    found = np.nan_to_num(betaincinv(a, b, alpha * (1 - _SLACK)), nan=0.0)
    certain = (hits == 0) | (alpha < _LEAST_LEVEL)
    return np.where(certain, 0.0, _confirmed(found, lambda p: betainc(a, b, p), alpha, 1 - _FIRST_MOVE))


def clopper_pearson_upper(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at most this.

    The bound is the (1 - alpha)-quantile of Beta(hits + 1, draws - hits), and 1 where every draw was hit or
    alpha is below 1e-220. The arguments are those of `clopper_pearson_lower`.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    a, b = hits + 1, np.maximum(draws - hits, 1)
    found = np.nan_to_num(betainccinv(a, b, alpha * (1 - _SLACK)), nan=1.0)
    certain = (hits == draws) | (alpha < _LEAST_LEVEL)
    return np.where(certain, 1.0, _confirmed(found, lambda p: betaincc(a, b, p), alpha, 1 + _FIRST_MOVE))


def _confirmed(
    found: ArrayLike, chance: Callable[[Floats], NDArray[np.floating]], alpha: Floats, move: float
) -> Floats:
    """The bounds, each moved outwards, in steps that double, until its chance to fail is clearly below alpha.

    Args:
        found: The bounds to start from, in [0, 1].
        chance: The probability, were the truth at the bound, of hits at least as extreme as those seen.
        alpha: What that probability may be.
        move: The first factor, just below 1 for lower bounds and just above it for upper ones.
    """
    bound = np.asarray(found, dtype=np.float64)
    wrong = ~(chance(bound) <= alpha * (1 - _SLACK / 2))
    while np.any(wrong):
        bound = np.where(wrong, np.clip(bound * move, 0.0, 1.0), bound)
        move = 1 + 2 * (move - 1)
        wrong = ~(chance(bound) <= alpha * (1 - _SLACK / 2)) & (bound < 1) & (bound > 0)
    return bound


def _checked(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
    hits, draws, alpha = (np.asarray(values, dtype=np.float64) for values in (hits, draws, alpha))
    if not (np.all(draws >= 1) and np.all(draws <= _MOST_DRAWS) and np.all(draws == np.floor(draws))):
        raise InvalidInputError(f"draws must be whole numbers from 1 to {_MOST_DRAWS:,}, got {draws}")
    if not (np.all(hits >= 0) and np.all(hits <= draws) and np.all(hits == np.floor(hits))):
        raise InvalidInputError(
            "hits must be whole numbers between 0 and draws: a count of the wrong trials proves nothing"
        )
    if not np.all((alpha > 0) & (alpha < 1)):
        raise InvalidInputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    return hits, draws, alpha
