"""The fast code against loops that follow the formulas by hand."""

from itertools import combinations, product

import numpy as np
import pytest
from mpmath import mp, mpf
from tests.certify import fifty_digits, literal
from tests.certify.cases import random_ranked, random_sets
from tests.certify.fifty_digits import DIGITS
from tests.certify.hard_cases import (
    CLAIMS,
    Case,
    NoiseOf,
    as_hits,
    ballot_of,
    check_claims,
    check_top_k,
    half_uniform,
    moved,
)

from multiguard.certify import (
    Gaussian,
    Threshold,
    TopK,
    certified_radii,
    certified_radii_batch,
    exact_radii,
    hits_from_ranked,
)
from multiguard.certify.draws import count_votes

# labels, draws, k', k, true labels: few and many labels, d = 1 to more than 6, d > k, c - d < k.
SHAPES = [
    (3, 40, 1, 1, 1),
    (5, 200, 2, 3, 2),
    (6, 200, 2, 2, 4),
    (6, 300, 3, 4, 4),
    (8, 500, 5, 6, 4),
    (10, 1000, 1, 3, 3),
    (12, 300, 4, 3, 8),
    (20, 1000, 3, 10, 7),
    (20, 100, 5, 19, 2),
    (40, 1000, 2, 5, 5),
    (81, 1000, 3, 10, 3),
    (81, 1000, 5, 10, 9),
]


def few(shape: tuple[int, ...]) -> bool:
    """Whether loops over every subset and every set of rivals are quick enough."""
    return shape[4] <= 5 and shape[3] <= 6 and shape[0] <= 20


@pytest.mark.parametrize("noise", [Gaussian, half_uniform], ids=["gaussian", "uniform"])
@pytest.mark.parametrize(
    ("method", "shape"), [(m, s) for m in CLAIMS for s in SHAPES if m != "joint" or few(s)], ids=str
)
def test_literal(noise: NoiseOf, method: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method proves what its formulas give, and no less; layers that were never hit count with D."""
    if noise is half_uniform:
        monkeypatch.setattr(fifty_digits, "shifted", moved)
    c, draws, k_prime, k, d = shape
    rng = np.random.default_rng([*shape, len(method)])
    for spread in (1.0, 4.0):
        ranked = random_ranked(rng, labels=c, depth=k_prime, draws=draws, spread=spread)
        hits = hits_from_ranked(ranked, k_prime=k_prime, num_labels=c)
        # True labels are mostly the popular ones, so that there is something to certify.
        likely = (1 + hits.sum(axis=0) ** 2) / (1 + hits.sum(axis=0) ** 2).sum()
        labels = tuple(sorted(rng.choice(c, d, replace=False, p=likely).tolist()))
        check_top_k(Case(ballot_of(hits), labels, k, k_prime, 0.5, 0.01), method, noise)


@pytest.mark.parametrize("method", CLAIMS)
def test_exact_probabilities(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exact probabilities, too."""
    monkeypatch.setattr(fifty_digits, "lower", lambda hits, draws, level: mpf(hits) / draws)
    rng = np.random.default_rng(5)
    for c, k_prime, k, d in [(5, 2, 2, 2), (6, 2, 3, 3), (6, 3, 2, 2), (5, 1, 2, 3), (6, 3, 4, 4)]:
        ballot = ballot_of(random_ranked_hits(rng, c, k_prime))
        sets, chances = as_hits(ballot), np.array(ballot.times) / ballot.draws
        labels = sorted(int(i) for i in np.argsort(-(chances @ sets))[:d])
        radii = exact_radii(sets, chances, labels, TopK(k, k_prime), sigma=1.0, method=method).true
        with mp.workdps(DIGITS):
            claims = CLAIMS[method](ballot, labels, k, k_prime, mpf(1) / 2)
        for size, radius in enumerate(radii, start=1):
            if radius < 6:  # beyond, doubles cannot tell a probability from 1
                check_claims(claims if method == "jia" else claims[:size], size, float(radius), 1.0)


def random_ranked_hits(rng: np.random.Generator, c: int, k_prime: int) -> np.ndarray:
    ranked = random_ranked(rng, labels=c, depth=k_prime, draws=4096, spread=3.0)
    return hits_from_ranked(ranked, k_prime=k_prime, num_labels=c)


@pytest.mark.parametrize("seed", range(8))
def test_rival_layers(seed: int) -> None:
    """Each layer of each set of rivals is what loops count, and no set of rivals has more draws in it."""
    rng = np.random.default_rng(seed)
    c, k_prime, d, k = (int(rng.integers(*ends)) for ends in ((4, 8), (1, 4), (1, 4), (1, 5)))
    ranked = random_ranked(rng, labels=c, depth=k_prime, draws=40, spread=2.0)
    rows = hits_from_ranked(ranked, k_prime=k_prime, num_labels=c).tolist()
    labels = sorted(rng.choice(c, d, replace=False).tolist())
    found = count_votes(ranked, labels, TopK(k, k_prime), c).rival_mass
    assert found.shape == (min(d, k), k, k_prime)
    votes = [sum(row[j] for row in rows) for j in range(c)]
    others = [j for j in range(c) if j not in labels]
    for e, v in product(range(1, min(d, k) + 1), range(1, k + 1)):
        s = k - e + 1
        if v > s or s > c - d:
            assert not found[e - 1, v - 1].any()
            continue
        most = literal.eligible_counts(rows, labels, s, v, k_prime)
        assert found[e - 1, v - 1].tolist() == most
        for V in combinations(others, s):
            T = sorted(V, key=lambda j: (-votes[j], j))[s - v :]
            assert np.all(np.array(literal.layer_counts(rows, T, k_prime)) <= most)


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia", "betting", "sets"])
def test_batch(method: str) -> None:
    """A batch is its images one by one, with any number of draws and of labels."""
    rng = np.random.default_rng(8)
    counts = rng.integers(50, 400, 20).tolist()
    rule, options = TopK(4, 2), {"num_labels": 15, "sigma": 0.3, "method": method}
    votes = [random_ranked(rng, labels=15, depth=4, draws=n, spread=3.0) for n in counts]
    if method == "sets":
        votes, rule = [random_sets(rng, labels=15, draws=n, spread=1.5) for n in counts], Threshold(0.4)
        options["method"] = "joint"
    labels = [rng.choice(15, d % 7 if d < 19 else 15, replace=False) for d in range(20)]
    batch = certified_radii_batch(iter(votes), iter(labels), rule, **options)
    for rows, true, radii in zip(votes, labels, batch, strict=True):
        if len(true) or method == "sets":
            np.testing.assert_array_equal(radii.row, certified_radii(rows, true, rule, **options).row)
        else:
            assert radii.true.shape == (0,)
