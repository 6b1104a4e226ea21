"""Linear classifiers, whose true behaviour is known exactly: claims against the truth."""

from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest
from tests.certify.cases import Lines, Pairs, interval_probabilities

from multiguard.certify import TopK, certified_radii_batch, exact_radii, hits_from_ranked

ALPHA = 0.1
CASES = 1500


@pytest.fixture(scope="module")
def truths():
    """Random linear classifiers with the votes drawn from them and the radii at which each size truly breaks.

    Keyed by (labels, k', k); each entry is (ranked votes, true labels, breaking radii).
    """
    rng = np.random.default_rng(2022)
    cases = defaultdict(list)
    for _ in range(CASES):
        c, k_prime = int(rng.integers(3, 7)), int(rng.integers(1, 3))
        k, d = min(int(rng.integers(1, 4)), c - 1), int(rng.integers(1, min(4, c)))
        model = Lines.random(rng, labels=c, k_prime=k_prime, sigma=0.5)
        ranked = model.ranked(0.5 * rng.standard_normal(int(rng.choice([30, 100, 400]))))
        likely = np.argsort(-model.probabilities(np.zeros(1))[0])
        labels = np.sort(likely[:d] if rng.random() < 0.7 else rng.choice(c, d, replace=False))
        cases[c, k_prime, k].append((ranked, labels, model.break_radii(labels, k, furthest=3.0)))
    return cases


def false_claims(truths, prove, most: int = CASES) -> int:
    """In how many cases any size is claimed at a radius at which it is truly broken."""
    wrong = 0
    for (c, k_prime, k), cases in truths.items():
        ranked, labels, breaks = zip(*cases[: most * len(cases) // CASES], strict=True)
        claims = prove(ranked, labels, TopK(k, k_prime), num_labels=c, sigma=0.5)
        wrong += sum(bool(np.any((r.true >= b) & np.isfinite(b))) for r, b in zip(claims, breaks, strict=True))
    return wrong


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia"])
def test_false_claims(truths, method: str) -> None:
    """Over random linear classifiers, false claims are as rare as promised."""
    wrong = false_claims(truths, partial(certified_radii_batch, alpha=ALPHA, method=method))
    assert binomtest(wrong, CASES, ALPHA, alternative="greater").pvalue > 1e-4


def test_false_claims_without_bounds(truths) -> None:
    """The same test rejects the frequencies themselves, taken for probabilities."""

    def prove(ranked, labels, rule, *, num_labels, sigma):
        for votes, true in zip(ranked, labels, strict=True):
            hits = hits_from_ranked(votes, k_prime=rule.k_prime, num_labels=num_labels)
            sets, counts = np.unique(hits, axis=0, return_counts=True)
            yield exact_radii(sets, counts / counts.sum(), true, rule, sigma=sigma, method="joint")

    wrong = false_claims(truths, prove, most=500)
    assert binomtest(wrong, 500, ALPHA, alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia"])
def test_exact_claims(method: str) -> None:
    """With exact probabilities no claim is false."""
    rng = np.random.default_rng(7)
    proved = 0
    for _ in range(400):
        c, k_prime, k = int(rng.integers(3, 8)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
        model = Lines.random(rng, labels=c, k_prime=min(k_prime, c - 1), sigma=0.5)
        k, d = min(k, c - 1), int(rng.integers(1, min(4, c)))
        ends, answers = model.pieces()
        chances = interval_probabilities(ends / model.sigma)
        if np.any(np.abs(chances @ answers - 1) < 1e-12):
            continue  # a double cannot hold how far such a probability is from 1
        labels = np.sort(np.argsort(-(chances @ answers))[:d])
        radii = exact_radii(answers, chances, labels, TopK(k, model.k_prime), sigma=0.5, method=method).true
        breaks = model.break_radii(labels, k, furthest=2.5)
        assert np.all((radii <= breaks + 1e-9) | np.isinf(breaks))
        proved += np.sum(np.isfinite(radii))
    assert proved > 200


@pytest.mark.parametrize("method", ["joint", "paper", "jia"])
def test_least_attack(method: str) -> None:
    """Classifiers on R^m for which the least attack is known exactly."""
    rng = np.random.default_rng(11)
    proved = 0
    for _ in range(60):
        m = int(rng.integers(2, 5))
        model = Pairs(rng.standard_normal(m), sigma=0.6)
        k, d = int(rng.integers(1, m + 1)), int(rng.integers(1, m + 1))
        labels = tuple(sorted(int(i) for i in np.argsort(-model.values)[:d]))
        radii = exact_radii(*model.distribution(), labels, TopK(k, m), sigma=0.6, method=method).true
        for e, radius in enumerate(radii, start=1):
            if np.isfinite(radius):
                proved += 1
                assert radius <= model.least_break(labels, k, e) + 1e-7
    assert proved > 30


@pytest.fixture(scope="module")
def half_space():
    """Votes on two labels split by a hyperplane at distance 0.4, where certificates are tight."""
    rng = np.random.default_rng(12)
    return [(rng.random((200, 1)) >= ndtr(0.4 / 0.5)).astype(np.uint8) for _ in range(2000)]


def false_at_the_edge(votes, *, alpha: float, method: str) -> int:
    """How many of the votes certify label 0 at the very distance of the hyperplane."""
    options = {"num_labels": 2, "sigma": 0.5, "alpha": alpha, "method": method}
    proved = certified_radii_batch(votes, [[0]] * len(votes), TopK(1, 1), **options)
    return sum(radii.true[0] >= 0.4 for radii in proved)


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia"])
def test_spent_error(half_space, method: str) -> None:
    """Where certificates are tight, the error is spent but not exceeded."""
    wrong = false_at_the_edge(half_space, alpha=0.2, method=method)
    assert binomtest(wrong, len(half_space), 0.2, alternative="greater").pvalue > 1e-4
    assert wrong > 0.03 * len(half_space)


@pytest.mark.parametrize("method", ["joint", "paper", "jia"])
def test_caught_error(half_space, method: str) -> None:
    """Four times the error is caught."""
    wrong = false_at_the_edge(half_space, alpha=0.8, method=method)
    assert binomtest(wrong, len(half_space), 0.2, alternative="greater").pvalue < 1e-6
