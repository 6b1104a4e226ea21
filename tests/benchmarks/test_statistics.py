"""The other statistics are loose or unsound, as documented."""

import numpy as np
import pytest
from benchmarks.results.statistics import PUBLIC, Images, claims_beyond, false_claim_chances, statistics
from tests.certify import literal
from tests.certify.cases import random_ranked

from multiguard.certify import Radii, TopK

KINDLY = "Eq. 10 as printed, read kindly (not sound)"


def public_size(counts, labels, *, draws, k, k_prime, alpha, r):
    """Theorem 1 as the public code has it, term by term: n k' trials, no cap."""
    trials, level = draws * k_prime, alpha / len(counts)
    a = sorted((literal.lower(counts[i], trials, level) for i in labels), reverse=True)
    b = sorted((literal.upper(n, trials, level) for j, n in enumerate(counts) if j not in labels), reverse=True)
    for e in range(min(len(a), k), 0, -1):
        s = k - e + 1
        left = [k_prime / u * literal.down(sum(a[e - 1 : e - 1 + u]) / k_prime, r) for u in range(1, len(a) - e + 2)]
        right = [k_prime / v * literal.up(sum(b[s - v : s]) / k_prime, r) for v in range(1, s + 1)]
        if max(literal.down(a[e - 1], r), *left) > min(literal.up(b[s - 1], r), *right):
            return e
    return 0


@pytest.mark.parametrize("seed", range(4))
def test_public_code(seed):
    """The statistics of the public code are those of its formula."""
    options = {"draws": 300, "k": 3, "k_prime": 2, "alpha": 0.01}
    ranked = random_ranked(np.random.default_rng(seed), labels=12, depth=4, draws=300, spread=3.0)
    counts = np.bincount(ranked[:, :2].ravel(), minlength=12)
    labels = [int(label) for label in np.argsort(-counts)[:3]]
    radii = Images([ranked], [labels], 12, 1.0).radii(TopK(k=3, k_prime=2), 0.01, statistics(2)[PUBLIC])[0]
    proved = [float(r) for r in radii if r > 0]
    assert proved
    for r in proved:
        assert public_size(counts.tolist(), labels, **options, r=r * (1 - 1e-6)) >= np.sum(radii >= r)
        assert public_size(counts.tolist(), labels, **options, r=r * (1 + 1e-6)) < np.sum(radii >= r)


def test_unsound_bound():
    """Only the printed bound is wrong more often than alpha."""
    rival, alpha = np.geomspace(1e-4, 0.4, 2000), 0.05
    worst = {
        name: false_claim_chances(solver, draws=120, alpha=alpha, rival=rival).max()
        for name, solver in statistics(1).items()
    }
    assert all((chance > alpha) == ("not sound" in name) for name, chance in worst.items()), worst
    assert worst[KINDLY] < 0.1


def test_claims_beyond():
    """Claims beyond the proved ones are counted label by label."""
    more, right = [Radii(np.array([np.inf, 0.6, 0.4]), None)], [Radii(np.array([0.5, 0.4, -np.inf]), None)]
    assert [claims_beyond(more, right, radius) for radius in (0.0, 0.4, 0.5, 0.7)] == [1, 1, 1, 1]
