"""Floating point never makes a claim stronger: hard cases against arithmetic with 40 digits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from multiguard.certify import TopK, certified_radii_batch, clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.layers import fill, scale_radii

DIGITS = 40


def tail(hits: int, draws: int, p: mpf) -> mpf:
    """Pr(at least `hits` of `draws`), summed term by term."""
    terms = (mp.binomial(draws, i) * p**i * (1 - p) ** (draws - i) for i in range(hits, draws + 1))
    return mp.fsum(terms)


@pytest.mark.parametrize("draws", [1, 30, 400])
@pytest.mark.parametrize("alpha", [0.3, 1e-3, 1e-9, 1e-25, 1e-250])
def test_safe_bounds(draws: int, alpha: float) -> None:
    """In 40 digits the bounds lie on the safe side, and not far from it."""
    with mp.workdps(DIGITS):
        for hits in sorted({1, draws // 2 + 1, draws}):
            low = mpf(float(clopper_pearson_lower(hits, draws, alpha)))
            assert tail(hits, draws, low) <= alpha
            assert tail(hits, draws, low) > alpha * (1 - mpf(10) ** -6) or low == 0
            # Seeing at most draws - hits under p is seeing at least hits of the complement under 1 - p.
            high = mpf(float(clopper_pearson_upper(draws - hits, draws, alpha)))
            assert high == 1 or tail(hits, draws, 1 - high) <= alpha


def long_tail(hits: int, draws: int, p: mpf) -> mpf:
    """Pr(at least `hits` of `draws`), term after term until the rest cannot be seen."""
    term = mp.exp(
        mp.loggamma(draws + 1)
        - mp.loggamma(hits + 1)
        - mp.loggamma(draws - hits + 1)
        + hits * mp.log(p)
        + (draws - hits) * mp.log1p(-p)
    )
    total, odds = term, p / (1 - p)
    for i in range(hits, draws):
        term *= mpf(draws - i) / (i + 1) * odds
        total += term
        if term < total * mpf(10) ** -(DIGITS - 5):
            break
    return total


# Where SciPy's inverse alone would claim too much: by 2 parts in 1e9 of the bound, or by a thousandth of alpha.
@pytest.mark.parametrize(
    ("hits", "draws", "alpha"),
    [
        (1000, 10**6, 1e-3),
        (10_000, 10**5, 1e-6),
        (999_993, 10**6, 1e-3),
        (10**8 - 7, 10**8, 0.3),
        (10**8 - 1, 10**8, 0.3),
    ],
)
def test_safe_bounds_many_draws(hits: int, draws: int, alpha: float) -> None:
    """The same for up to a hundred million draws, where SciPy alone would claim too much."""
    with mp.workdps(DIGITS):
        assert long_tail(hits, draws, mpf(float(clopper_pearson_lower(hits, draws, alpha)))) <= alpha
        high = mpf(float(clopper_pearson_upper(draws - hits, draws, alpha)))
        assert long_tail(hits, draws, 1 - high) <= alpha


def shifted(q: float, r: float) -> mpf:
    """Phi(Phi^-1(q) + r) with many digits."""
    q = mpf(q)
    sign, small = (1, q) if q < 0.5 else (-1, 1 - q)
    guess = -mp.sqrt(-2 * mp.log(small)) if small < 0.1 else mpf(-0.5)
    score = sign * mp.findroot(lambda z: mp.log(mp.ncdf(z)) - mp.log(small), guess)
    return mp.ncdf(score + r)


@pytest.mark.parametrize(
    ("counts", "sigma", "alpha"),
    [
        ([1000, 0, 0], 0.5, 1e-3),
        ([100000, 0, 0], 0.5, 1e-12),
        ([600, 400, 0], 1.0, 1e-3),
        ([9999, 1, 0], 0.25, 1e-30),
        ([501, 1, 498], 2.0, 0.4),
    ],
)
def test_safe_radius(counts: list[int], sigma: float, alpha: float) -> None:
    """In 40 digits a radius lies on the certified side, and a little more does not."""
    ranked = np.repeat(np.arange(3), counts)[:, None]
    radius = certified_radii_batch([ranked], [[0]], TopK(1, 1), num_labels=3, sigma=sigma, alpha=alpha, method="paper")[
        0
    ].true[0]
    low = float(clopper_pearson_lower(counts[0], sum(counts), alpha / 3))
    high = min(float(clopper_pearson_upper(max(counts[1:]), sum(counts), alpha / 3)), 1 - low)
    if np.isneginf(radius):
        assert low <= high * (1 + 1e-9)
        return
    with mp.workdps(DIGITS):
        r = mpf(float(radius)) / mpf(sigma)
        assert shifted(low, -r) > shifted(high, r)
        further = r + mpf(10) ** -9
        assert not shifted(low, -further) > shifted(high, further)


def test_extreme_cases() -> None:
    """Radii are finite or -inf where everything is extreme."""
    for draws in (1, 10, 10**6):
        ranked = np.zeros((draws, 1), dtype=np.uint8)
        for alpha in (1e-200, 1e-15, 0.999):
            radius = certified_radii_batch(
                [ranked], [[0]], TopK(1, 1), num_labels=2, sigma=1.0, alpha=alpha, method="joint"
            )[0].true[0]
            assert radius < 10 or np.isneginf(radius)


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
