"""Uniform noise and pixel ablation: every certificate against slow loops, the exact limit and false claims."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.certify import total_variation as tv
from tests.certify.cases import random_distribution, random_ranked
from tests.certify.worst_cases import ceiling_of_two, floor_of_two, top_two_of_five, two_labels, variation

from multiguard.certify import (
    BandAblation,
    Noise,
    PixelAblation,
    Threshold,
    TopK,
    Uniform,
    certified_radii,
    certified_radii_batch,
    exact_radii,
)
from multiguard.errors import InvalidInputError

UNIT = Uniform(0.5)  # a radius of it is D itself


def exact_cases(rule_kind: str):
    """Small laws of votes, with labels that are likely."""
    rng = np.random.default_rng(3)
    for c, k_prime, k, d in [(4, 2, 2, 2), (5, 2, 3, 3), (5, 1, 2, 2), (5, 3, 2, 2)] * 2:
        sets, chances = random_distribution(rng, labels=c, k_prime=k_prime)
        if rule_kind == "threshold":
            sets = np.arange(1 << 4)[:, None] >> np.arange(4) & 1 == 1
            chances = rng.dirichlet(np.full(16, 0.3))
        yield sets, chances, sorted(np.argsort(-(chances @ sets))[:d].tolist()), k, k_prime


@pytest.mark.parametrize("method", ["joint", "paper", "jia"])
def test_exact_limit(method: str) -> None:
    """With exact probabilities no size is claimed at a D at which some law within D breaks it."""
    reached = []
    for sets, chances, labels, k, k_prime in exact_cases("top-k"):
        radii = exact_radii(sets, chances, labels, TopK(k, k_prime), noise=UNIT, method=method).true
        for e, radius in enumerate(radii, start=1):
            limit = tv.size_limit(sets, chances, labels, k=k, e=e)
            assert radius <= limit + 1e-6
            if limit < np.inf and limit > 0.01:
                reached.append(max(radius, 0.0) / limit)
    assert len(reached) > 10
    assert np.mean(reached) > {"joint": 0.95}.get(method, 0.6)


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_exact_limit_threshold(method: str) -> None:
    """The same for floors and ceilings."""
    t, reached = 0.4, []
    for sets, chances, labels, _, _ in exact_cases("threshold"):
        found = exact_radii(sets, chances, labels, Threshold(t), noise=UNIT, method=method)
        limits = [
            *(tv.floor_limit(sets, chances, labels, t=t, e=e) for e in range(1, len(found.true) + 1)),
            *(tv.ceiling_limit(sets, chances, labels, t=t, m=m) for m in range(len(found.false))),
        ]
        assert np.all(found.row <= np.array(limits) + 1e-6)
        reached += [max(r, 0.0) / limit for r, limit in zip(found.row, limits, strict=True) if 0.01 < limit < np.inf]
    assert np.mean(reached) > 0.8


@given(st.integers(51, 100), st.floats(1e-3, 1e3))
def test_closed_form(percent: int, half_width: float) -> None:
    """Two labels of probability p and 1 - p: 2 b (p - 1/2), and never above it as an exact fraction."""
    chances, noise = [percent / 100, 1 - percent / 100], Uniform(half_width)
    limit = 2 * Fraction(half_width) * (Fraction(chances[0]) - Fraction(1, 2))
    for method in ("joint", "paper"):
        (radius,) = exact_radii(np.eye(2, dtype=bool), chances, [0], TopK(1, 1), noise=noise, method=method).true
        assert limit * (1 - Fraction(1, 10**8)) <= Fraction(float(radius)) <= limit


FAR, T = 0.2, 0.4
PIXELS = tv.HiddenPixels(keep=3, pixels=20, changed=2)
ORIGINAL = np.zeros(20)
# A classifier that breaks exactly at D, its rule and L, and which radius of the row is then false.
BROKEN = {
    "half": (lambda far: two_labels(far, variation), TopK(1, 1), [0], 0),
    "steps": (lambda far: top_two_of_five(far, moved=variation), TopK(2, 2), [0], 0),
    "floor": (lambda far: floor_of_two(far, T, variation), Threshold(T), [0, 1], 0),
    "ceiling": (lambda far: ceiling_of_two(far, T, variation), Threshold(T), [0], 2),
}


def false_claims(case: str, method: str, attacked: str, images: int, noise: Noise | None = None) -> int:
    """In how many images the claim that is broken at the radius of the attack is made there, at alpha = 0.4."""
    build, rule, labels, claim = BROKEN[case]
    true_noise, radius = (UNIT, FAR) if attacked == "uniform" else (PixelAblation(PIXELS.keep, PIXELS.pixels), 2)
    model = build(float(true_noise.variation(radius)) if attacked == "pixels" else FAR)
    rng = np.random.default_rng([len(case), len(method), len(attacked)])
    copies = [rng.random(150) if attacked == "uniform" else PIXELS.positions(rng, 150, ORIGINAL) for _ in range(images)]
    votes, options = [model.at(rng, s) for s in copies], {"noise": noise or true_noise, "alpha": 0.4, "method": method}
    found = certified_radii_batch(votes, [labels] * images, rule, num_labels=votes[0].shape[1], **options)
    return sum(radii.row[claim] >= radius for radii in found)


ATTACKED = [("half", "pixels"), ("steps", "uniform"), ("floor", "pixels"), ("ceiling", "uniform")]


@pytest.mark.parametrize(("case", "attacked"), ATTACKED)
@pytest.mark.parametrize("method", ["joint", "coupled", "betting"])
def test_false_claims(method: str, case: str, attacked: str) -> None:
    """A claim that a classifier breaks by a hair is made as rarely as promised."""
    images = 150 if method == "joint" else 20
    wrong = false_claims(case, method, attacked, images)
    assert binomtest(wrong, images, 0.4, alternative="greater").pvalue > 1e-4


@pytest.mark.soak
@pytest.mark.parametrize("attacked", ["uniform", "pixels"])
@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("method", ["joint", "coupled", "betting", "independent", "paper"])
def test_false_claims_soak(method: str, case: str, attacked: str) -> None:
    """Many more images, every classifier under every noise."""
    if method not in BROKEN[case][1].methods:
        pytest.skip("no method of this rule")
    wrong = false_claims(case, method, attacked, 1000)
    assert binomtest(wrong, 1000, 0.4, alternative="greater").pvalue > 1e-4


@pytest.mark.parametrize("method", ["joint", "coupled", "betting"])
def test_too_much_noise_caught(method: str) -> None:
    """Certified as if the noise were wider than it was, the same votes make far too many false claims."""
    wrong = false_claims("half", method, "uniform", 40, Uniform(2.0))
    assert binomtest(wrong, 40, 0.4, alternative="greater").pvalue < 1e-6


def test_attacked_copies() -> None:
    """The classifiers of these tests lose exactly D: counted over all copies of the image and of the attacked one."""
    order, far = PIXELS.order(), float(PixelAblation(PIXELS.keep, PIXELS.pixels).variation(PIXELS.changed))
    attacked = np.where(np.arange(20) < PIXELS.changed, 1.0, ORIGINAL)
    model, rng = top_two_of_five(far, moved=variation), np.random.default_rng(0)
    assert (attacked[order] == 1).any(axis=1).mean() == pytest.approx(far, abs=1e-12)
    s = PIXELS.positions(rng, 40_000, attacked)
    assert s.min() >= far - 1e-12
    for tail in model.tails:
        assert np.mean(s < tail) == pytest.approx(max(0.0, tail - far), abs=0.01)
    after = model.at(rng, s).mean(axis=0)
    assert after[0] == pytest.approx(after[1:3].mean(), abs=0.02)


votes = st.tuples(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([20, 60, 150]))


@settings(max_examples=25, deadline=None)
@given(votes, st.sampled_from(["joint", "paper", "jia", "coupled", "betting"]))
def test_units(case: tuple[int, int, int], method: str) -> None:
    """A radius is D in the unit of the noise: in proportion to the width, and the most pixels that D allows."""
    seed, k_prime, draws = case
    ranked = random_ranked(np.random.default_rng(seed), labels=6, depth=k_prime, draws=draws, spread=4.0)
    labels = np.argsort(-np.bincount(ranked.ravel(), minlength=6))[:2]
    pixels = PixelAblation(5, 60)

    def radii(noise: Noise) -> np.ndarray:
        return certified_radii(ranked, labels, TopK(3, k_prime), noise=noise, num_labels=6, method=method).true

    far = radii(UNIT)
    np.testing.assert_array_equal(radii(Uniform(1.0)), 2 * far)
    found = radii(pixels)
    finite = np.isfinite(found)
    np.testing.assert_array_equal(finite, np.isfinite(far))
    room = 0.0 if method in ("joint", "paper", "jia") else 0.06  # bets have another list of D, with other bets
    assert np.all(pixels.variation(found[finite]) <= far[finite] + room)
    assert np.all(pixels.variation(found[finite] + 1) > far[finite] - room)


@pytest.mark.parametrize("method", ["joint", "paper", "coupled", "betting"])
def test_no_draws_of_a_band(method: str) -> None:
    """Methods that need random draws refuse a band, and all others refuse the method of bands."""
    ranked, band = [[0]] * 8, BandAblation(2, 8)
    with pytest.raises(InvalidInputError, match="use 'enumerated'"):
        certified_radii(ranked, [0], TopK(1, 1), noise=band, num_labels=2, method=method)
    with pytest.raises(InvalidInputError, match="is for band noise, not uniform:0"):
        certified_radii(ranked, [0], TopK(1, 1), noise=UNIT, num_labels=2, method="enumerated")
    with pytest.raises(InvalidInputError, match="no random draws"):
        exact_radii(np.eye(2, dtype=bool), [0.9, 0.1], [0], TopK(1, 1), noise=band, method=method)
