"""Bets with exact probabilities: at least joint, never beyond the exact limit, and close to it."""

import numpy as np
import pytest
from benchmarks.exact_law import law_radii
from scipy.special import ndtri
from tests.certify import total_variation as tv
from tests.certify.cases import random_distribution
from tests.certify.limit import limit_radius
from tests.certify.test_total_variation import UNIT, exact_cases

from multiguard.certify import Gaussian, Threshold, TopK, exact_radii


def test_exact_probabilities() -> None:
    """With exact probabilities betting is at least joint, never beyond the exact limit, and close to it."""
    rng = np.random.default_rng(6)
    better, reached = 0, []
    for _ in range(3):
        sets, chances = random_distribution(rng, labels=5, k_prime=2)
        labels = sorted(np.argsort(-chances @ sets)[:2].tolist())
        joint = exact_radii(sets, chances, labels, TopK(2, 2), sigma=1.0).true
        betting = law_radii(sets, chances, labels, TopK(2, 2), Gaussian(1.0)).true
        for e in (1, 2):
            if betting[e - 1] > 0:
                limit = limit_radius(sets, chances, labels, k=2, e=e)
                assert betting[e - 1] <= limit + 1e-9
                reached += [betting[e - 1] / limit] if 0.05 < limit < 5 else []
        assert np.all(betting >= joint - 1e-6)
        better += int(np.sum(betting > joint + 1e-3))
    assert better
    assert np.mean(reached) > 0.98


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_of_labels(seed: int) -> None:
    """Where equal weights stay 2 % below the exact limit, weights reach it, up to the limit's own intervals."""
    sets, chances = random_distribution(np.random.default_rng(seed), labels=6, k_prime=2)
    chances = 0.99 * chances + 0.01 / len(sets)
    labels = sorted(np.argsort(-chances @ sets)[:3].tolist())
    proved = law_radii(sets, chances, labels, TopK(2, 2), Gaussian(1.0)).true[0]
    limit = limit_radius(sets, chances, labels, k=2, e=1, bins=120, within=1e-4)
    assert 0.998 * limit < proved <= limit


def test_exact_beyond_subsets() -> None:
    """More labels outside L than subsets are taken of: labels that never come change nothing."""
    rng = np.random.default_rng(7)
    sets, chances = random_distribution(rng, labels=6, k_prime=2)
    labels = np.argsort(-chances @ sets)[:2]
    wide = np.concatenate([sets, np.zeros((len(sets), 12), dtype=np.bool_)], axis=1)
    radii = [law_radii(each, chances, labels, TopK(2, 2), Gaussian(1.0)).true for each in (sets, wide)]
    assert np.allclose(radii[0], radii[1], atol=1e-6)


def test_exact_sets() -> None:
    """Floors and ceilings with exact probabilities are at least those of joint."""
    sets, chances = random_distribution(np.random.default_rng(8), labels=5, k_prime=2)
    joint = exact_radii(sets, chances, [0, 1], Threshold(0.3), sigma=1.0)
    betting = law_radii(sets, chances, [0, 1], Threshold(0.3), Gaussian(1.0))
    assert np.all(betting.true >= joint.true - 1e-6)
    assert np.all(betting.false >= joint.false - 1e-6)


def test_exact_ties() -> None:
    """Labels of the same probability: nothing is claimed, whatever rounding makes of it."""
    radii = law_radii(np.eye(5, dtype=np.bool_), [0.2] * 5, [0, 1, 2], TopK(1, 1), Gaussian(1.0))
    assert radii.true[0] == -np.inf
    rotations = np.array([np.roll([True] * 7 + [False], i) for i in range(8)])
    ceilings = law_radii(rotations, [1 / 8] * 8, [], Threshold(0.875), Gaussian(1.0)).false
    assert np.all(ceilings == -np.inf)


def test_tails() -> None:
    """A label that is returned nearly always is not taken for one that always is."""
    sets = np.eye(2, dtype=np.bool_)
    for chances, most in (([1.0, 5e-10], 6.2), ([1.0, 1e-18], 9.0), ([1.0, 1e-14], 9.0)):
        radius = law_radii(sets, chances, [0], TopK(1, 1), Gaussian(1.0)).true[0]
        assert 5 < radius <= min(most, -ndtri(chances[1] / sum(chances)))
    assert law_radii(sets, [1.0, 0.0], [0], TopK(1, 1), Gaussian(1.0)).true[0] == np.inf


def test_total_variation() -> None:
    """No size, floor or ceiling is claimed at a D at which some law within D breaks it."""
    reached = []
    for sets, chances, labels, k, k_prime in exact_cases("top-k"):
        radii = law_radii(sets, chances, labels, TopK(k, k_prime), UNIT).true
        limits = [tv.size_limit(sets, chances, labels, k=k, e=e) for e in range(1, len(radii) + 1)]
        assert np.all(radii <= np.array(limits) + 1e-6)
        reached += [max(r, 0.0) / limit for r, limit in zip(radii, limits, strict=True) if 0.01 < limit < np.inf]
    assert np.mean(reached) > 0.98
    for sets, chances, labels, _, _ in exact_cases("threshold"):
        found = law_radii(sets, chances, labels, Threshold(0.4), UNIT)
        floors = [tv.floor_limit(sets, chances, labels, t=0.4, e=e) for e in range(1, len(found.true) + 1)]
        ceilings = [tv.ceiling_limit(sets, chances, labels, t=0.4, m=m) for m in range(len(found.false))]
        assert np.all(found.row <= np.array([*floors, *ceilings]) + 1e-6)
