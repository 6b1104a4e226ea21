"""Clopper-Pearson bounds: against another library, by exact summation, and as forecasts."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from multiguard.certify import clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.layers import fill, scale_radii
from multiguard.errors import InvalidInputError


@pytest.mark.parametrize("draws", [1, 5, 60])
@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-3])
def test_exact_coverage(draws: int, alpha: float) -> None:
    """By exact summation the bounds cover any probability with at least 1 - alpha."""
    hits = np.arange(draws + 1)
    low, high = clopper_pearson_lower(hits, draws, alpha), clopper_pearson_upper(hits, draws, alpha)
    # The coverage has its least values right next to the bounds themselves.
    chances = np.unique(
        np.concatenate([np.linspace(0, 1, 101), low, high, np.nextafter(low, 0), np.nextafter(high, 1)])
    )
    for p in chances[(chances >= 0) & (chances <= 1)]:
        weights = binom.pmf(hits, draws, p)
        assert weights[low <= p].sum() >= 1 - alpha - 1e-12
        assert weights[high >= p].sum() >= 1 - alpha - 1e-12


def test_printed_upper_bound() -> None:
    """The smaller upper bound printed in the paper would not cover."""
    from scipy.stats import beta

    draws, alpha, hits = 60, 0.05, np.arange(1, 61)
    printed = beta.isf(alpha, hits, draws - hits + 1)
    p = 0.1
    assert binom.pmf(hits, draws, p)[printed >= p].sum() + binom.pmf(0, draws, p) < 1 - alpha


@pytest.mark.parametrize(
    ("hits", "draws", "alpha", "says"),
    [
        (1, 0, 0.1, "draws"),
        (1, 2.5, 0.1, "draws"),
        (1, 10**9, 0.1, "draws"),
        (3, 2, 0.1, "hits"),
        (-1, 2, 0.1, "hits"),
        (0.5, 2, 0.1, "hits"),
        (np.nan, 2, 0.1, "hits"),
        (1, 2, 0.0, "alpha"),
        (1, 2, 1.0, "alpha"),
        (1, 2, np.nan, "alpha"),
    ],
)
@pytest.mark.parametrize("bound", [clopper_pearson_lower, clopper_pearson_upper])
def test_refused_counts(bound, hits, draws, alpha, says) -> None:
    """Counts that cannot be are refused."""
    with pytest.raises(InvalidInputError, match=says):
        bound(hits, draws, alpha)


@given(st.floats(1e-6, 50), st.floats(1e-3, 100))
def test_scaled_radii(r: float, sigma: float) -> None:
    """Scaling by sigma rounds down."""
    assert Fraction(float(scale_radii(np.array([r]), sigma)[0])) <= Fraction(r) * Fraction(sigma)


def test_fill() -> None:
    """Layers are filled up evenly to their caps."""
    np.testing.assert_allclose(fill(np.array([0.5, 0.2, 0.1]), np.array(0.6)), [0.3, 0.2, 0.1])
    np.testing.assert_allclose(fill(np.array([0.5, 0.2, 0.1]), np.array(9.0)), [0.5, 0.2, 0.1])
    np.testing.assert_allclose(fill(np.array([0.5, 0.2, 0.1]), np.array(0.15)), [0.05, 0.05, 0.05])
    np.testing.assert_allclose(fill(np.array([0.5, 0.0, 0.0]), np.array(0.4)), [0.4, 0.0, 0.0])
    np.testing.assert_allclose(fill(np.zeros(3), np.array(0.4)), np.zeros(3))
