"""What no certificate can do: known cases, and no certificate of ours does it."""

import numpy as np
import pytest
from benchmarks.results.ceiling import Attack, claim_chance
from scipy.special import ndtr, ndtri
from tests.certify.limit import least_gap

from multiguard.certify import TopK, certified_radii_batch


def votes_with(chances: list[float], draws: int) -> np.ndarray:
    """(draws, 6) votes of one label each, with these frequencies."""
    labels = np.repeat(np.arange(6), np.round(np.array(chances) * draws).astype(int))
    return np.eye(6, dtype=bool)[labels]


@pytest.mark.parametrize(("k", "draws", "r"), [(1, 500, 2.0), (1, 1000, 2.5), (3, 200, 1.5)])
def test_unanimous_draws(k, draws, r):
    """If all draws agree, a half-space of other votes stays unseen with the probability in the formula."""
    hits, alpha = votes_with([1, 0, 0, 0, 0, 0], 1000), 0.001
    q = ndtr(ndtri(k / (k + 1)) - r)  # 1 - up(q) = up(q) / k: k rivals share the half-space
    expected = min(alpha / (1 - q) ** draws, 1.0)
    assert claim_chance(hits, [0], TopK(k, 1), 1, r, draws, alpha) == pytest.approx(expected, rel=1e-3)
    without = claim_chance(hits, [0], TopK(k, 1), 1, r, draws, alpha, coin=False)
    assert without == (1.0 if (1 - q) ** draws <= alpha else 0.0), "unanimous draws are all the same to it"


def test_certain_size():
    """A size that cannot fail is always claimed; one that this law itself breaks, at most at random."""
    hits = votes_with([0.6, 0.4, 0, 0, 0, 0], 1000)
    assert claim_chance(hits, [0, 1, 2], TopK(5, 1), 1, 1.0, 100, 0.01) == 1.0
    assert claim_chance(hits, [0], TopK(1, 1), 1, 1.0, 100, 0.01) == 0.01


def test_broken_laws():
    """A law that the bound rests on is that of a classifier that breaks, as a linear program finds."""
    rng, r = np.random.default_rng(1), 1.0
    mass = np.array([0.05, 0.15, 0.8])
    attack = Attack(mass, np.array([[0.0], [0.0], [1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), 2, 1)
    for x in rng.uniform(0.2, 0.4, size=3):
        y = float(attack._least_new(np.array([x]), r)[0])
        sets = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=bool)

        def law(x: float, y: float) -> np.ndarray:
            return np.array([y / 2 + x / 4, y / 2 + 3 * x / 4, 1 - x - y])

        assert least_gap(sets, law(x, y), (0,), (1, 2), r) <= 0.01


@pytest.mark.parametrize("method", ["coupled", "joint", "paper"])
def test_our_certificates(method):
    """On votes drawn from a law our certificates claim no more often than the bound says."""
    law, draws, repeats, alpha, rule = [0.9, 0.06, 0.04, 0, 0, 0], 100, 120, 0.05, TopK(2, 1)
    rng = np.random.default_rng(0)
    votes = rng.choice(6, p=law, size=(repeats, draws, 1)).astype(np.uint8)
    found = certified_radii_batch(votes, [[0]] * repeats, rule, num_labels=6, sigma=1.0, alpha=alpha, method=method)
    hits = votes_with(law, 10_000)
    for r in (0.6, 1.0, 1.2, 1.4):
        claimed = np.mean([radii.true[0] >= r for radii in found])
        bound = claim_chance(hits, [0], rule, 1, r, draws, alpha)
        assert claimed <= bound + 3 * np.sqrt(bound * (1 - bound) / repeats) + 1e-9
    assert bound < 1.0, "the last radius can fail"
