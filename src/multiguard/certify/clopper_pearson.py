"""Exact one-sided confidence bounds for a probability, from how often its event was seen."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv

from multiguard.certify.types import Floats
from multiguard.errors import InvalidInputError

# SciPy's inverse of the incomplete beta function is mostly right to the last digit, but for small probabilities and
# many draws it was found off by up to 3 parts in 1e17 a draw (3e-12 at a million draws, 2e-9 at a hundred million).
# Bounds are therefore moved outwards, by thirty times that and more.
_OUTWARD, _OUTWARD_A_DRAW = 1e-12, 1e-15
_MOST_DRAWS = 10**8


def clopper_pearson_lower(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at least this.

    The bound is the alpha-quantile of Beta(hits, draws - hits + 1), and 0 where nothing was hit.

    Args:
        hits: In how many draws the event was seen.
        draws: The number of independent draws.
        alpha: The probability that the bound may fail, in (0, 1).

    All three broadcast against each other; the result has their common shape.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    quantile: Floats = np.asarray(betaincinv(np.maximum(hits, 1), draws - hits + 1, alpha), dtype=np.float64)
    return np.where(hits == 0, 0.0, quantile * (1 - _outward(quantile, draws)))


def clopper_pearson_upper(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at most this.

    The bound is the (1 - alpha)-quantile of Beta(hits + 1, draws - hits), and 1 where every draw was hit. The
    arguments are those of `clopper_pearson_lower`.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    quantile: Floats = np.asarray(betainccinv(hits + 1, np.maximum(draws - hits, 1), alpha), dtype=np.float64)
    return np.where(hits == draws, 1.0, np.minimum(quantile * (1 + _outward(quantile, draws)), 1.0))


def _outward(quantile: Floats, draws: Floats) -> Floats:
    """By what share of its size a bound is moved to its safe side."""
    return _OUTWARD + _OUTWARD_A_DRAW * draws * (1 - quantile)


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
