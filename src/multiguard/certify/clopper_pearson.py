"""Exact one-sided confidence bounds for a probability, from how often its event was seen."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv

from multiguard.certify.types import Floats
from multiguard.errors import InvalidInputError

# Bounds are moved outwards by this much of their size. SciPy's inverse of the incomplete beta function is good to
# a few parts in 1e15, so the printed bound is always the safe side of the true one.
_OUTWARD = 1e-12


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
    quantile = betaincinv(np.maximum(hits, 1), draws - hits + 1, alpha)
    return np.where(hits == 0, 0.0, quantile * (1 - _OUTWARD))


def clopper_pearson_upper(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> Floats:
    """With probability at least 1 - alpha over the draws, the event's probability is at most this.

    The bound is the (1 - alpha)-quantile of Beta(hits + 1, draws - hits), and 1 where every draw was hit. The
    arguments are those of `clopper_pearson_lower`.
    """
    hits, draws, alpha = _checked(hits, draws, alpha)
    quantile = betainccinv(hits + 1, np.maximum(draws - hits, 1), alpha)
    return np.where(hits == draws, 1.0, np.minimum(quantile * (1 + _OUTWARD), 1.0))


def _checked(hits: ArrayLike, draws: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
    hits, draws, alpha = (np.asarray(values, dtype=np.float64) for values in (hits, draws, alpha))
    if not (np.all(draws >= 1) and np.all(np.isfinite(draws)) and np.all(draws == np.floor(draws))):
        raise InvalidInputError(f"draws must be whole numbers of at least 1, got {draws}")
    if not (np.all(hits >= 0) and np.all(hits <= draws) and np.all(hits == np.floor(hits))):
        raise InvalidInputError(
            "hits must be whole numbers between 0 and draws: a count of the wrong trials proves nothing"
        )
    if not np.all((alpha > 0) & (alpha < 1)):
        raise InvalidInputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    return hits, draws, alpha
