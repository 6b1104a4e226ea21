"""`Threshold(t, k_prime=k')` on ranked votes: against loops in fifty digits, exact limits, and true classifiers."""

import numpy as np
import pytest
from tests.certify import fifty_digits
from tests.certify import total_variation as tv
from tests.certify.cases import Lines, first_shift, interval_probabilities, random_distribution, random_ranked, too_many
from tests.certify.hard_cases import NoiseOf, ballot_of, check_threshold, half_uniform, moved
from tests.certify.limit import ceiling_limit, floor_limit

from multiguard.certify import (
    Gaussian,
    Radii,
    Threshold,
    Uniform,
    certified_radii,
    certified_radii_batch,
    exact_radii,
    hits_from_ranked,
)
from multiguard.certify.radii import _few_returned

ALPHA, SIGMA = 0.2, 0.5
METHODS = ["joint", "independent", "coupled"]


@pytest.mark.parametrize("noise", [Gaussian, half_uniform], ids=["gaussian", "uniform"])
@pytest.mark.parametrize(
    ("c", "k_prime", "d", "t"),
    [(5, 1, 3, 0.2), (6, 2, 4, 0.3), (7, 3, 2, 0.4), (7, 2, 0, 0.15), (6, 3, 5, 0.5), (15, 2, 13, 0.1)],
)
def test_literal(c: int, k_prime: int, d: int, t: float, noise: NoiseOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Floors and ceilings agree with loops that follow the formulas, with min(k', u) layers."""
    if noise is half_uniform:
        monkeypatch.setattr(fifty_digits, "shifted", moved)
    rng = np.random.default_rng([c, k_prime, d])
    for spread in (0.3, 1.5):
        ranked = random_ranked(rng, labels=c, depth=k_prime, draws=300, spread=spread)
        hits = hits_from_ranked(ranked, k_prime=k_prime, num_labels=c)
        labels = tuple(sorted(int(i) for i in np.argsort(-hits.sum(axis=0) - rng.random(c))[:d]))
        check_threshold(ballot_of(hits), labels, t, 2.0, 0.02, noise, k_prime=k_prime)


@pytest.mark.parametrize("method", ["joint", "independent"])
@pytest.mark.parametrize("t", [0.24, 0.5])
def test_exact_limits(method: str, t: float) -> None:
    """No claim, neither from bounds nor from how many labels fit above t, is beyond what some classifier breaks."""
    rng, proved = np.random.default_rng(3), 0
    for case, (c, k_prime, d) in enumerate([(4, 2, 2), (5, 2, 3), (5, 1, 2), (5, 3, 2), (4, 1, 0)] * 2):
        sets, chances = random_distribution(rng, labels=c, k_prime=k_prime)
        labels, rule = sorted(np.argsort(-(chances @ sets))[:d].tolist()), Threshold(t, k_prime)
        found = exact_radii(sets, chances, labels, rule, noise=Uniform(0.5), method=method)
        limits = [tv.floor_limit(sets, chances, labels, t=t, e=e) for e in range(1, d + 1)]
        limits += [tv.ceiling_limit(sets, chances, labels, t=t, m=m) for m in range(c - d)]
        assert np.all(found.row <= np.array(limits) + 1e-6)
        proved += int(np.sum(found.row > 0.01))
        if case in (0, 2):
            found = exact_radii(sets, chances, labels, rule, sigma=1.0, method=method)
            limits = [floor_limit(sets, chances, labels, threshold=t, e=e) for e in range(1, d + 1)]
            limits += [ceiling_limit(sets, chances, labels, threshold=t, m=m) for m in range(c - d)]
            assert np.all(found.row <= np.array(limits) + 1e-6)
    assert proved > 10


def test_few_returned() -> None:
    """At most floor(k'/t) labels are returned, so while e of L stay at most floor(k'/t) - e others come in: loops."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        d, others, k_prime = int(rng.integers(0, 5)), int(rng.integers(0, 7)), int(rng.integers(1, 4))
        rule = Threshold(float(rng.choice([0.15, 0.3, 0.5, 0.75, 0.9])), k_prime)
        most = max(w for w in range(100) if w * rule.t <= k_prime)
        true = -np.sort(-np.append(rng.random(d // 2), np.full(d - d // 2, -np.inf)))
        false = np.sort(np.where(rng.random(others) < 0.3, -np.inf, rng.random(others)))
        expected = false.copy()
        for m in range(others):
            if m >= most:
                expected[m] = np.inf
            for e in range(1, d + 1):
                if most - e <= m:
                    expected[m] = max(expected[m], true[e - 1])
        found = _few_returned(Radii(true, false), rule)
        np.testing.assert_array_equal(found.true, true)
        np.testing.assert_array_equal(found.false, expected)


def test_most_returned_at_equality() -> None:
    """Eleven labels at exactly 7/11 all reach the double 0.6363636363636364, which is less than that decimal number."""
    t = 7 / 11
    assert Threshold(t, 7).most_returned(20) == 11
    assert Threshold(0.1, 1).most_returned(20) == 10  # the double is more than 0.1
    assert Threshold(0.3, 3).most_returned(8) == 8
    votes = [[(i + j) % 11 for j in range(7)] for i in range(11)] * 30
    assert certified_radii(votes, [], Threshold(t, 7), num_labels=12, sigma=1.0).false[10] == -np.inf


# --------------------------------------------------------------------------------- classifiers known exactly


T = 0.3


@pytest.fixture(scope="module")
def lines():
    """Random linear classifiers with two labels per draw: votes, L, and the shifts that truly break each claim."""
    rng, cases, shifts = np.random.default_rng(9), [], np.linspace(0, 2.5, 500)
    for _ in range(500):
        model = Lines.random(rng, labels=6, k_prime=2, sigma=SIGMA)
        votes = model.ranked(SIGMA * rng.standard_normal(int(rng.choice([100, 400]))))
        labels = np.sort(np.argsort(-model.probabilities(np.zeros(1))[0])[: rng.integers(0, 4)])
        inside = [model.probabilities(sign * shifts) >= T for sign in (1, -1)]
        others = np.setdiff1d(np.arange(6), labels)
        kept = np.minimum(*(found[:, labels].sum(axis=1) for found in inside))
        entered = np.maximum(*(found[:, others].sum(axis=1) for found in inside))
        breaks = [first_shift(shifts, kept < e) for e in range(1, len(labels) + 1)]
        breaks += [first_shift(shifts, entered > m) for m in range(len(others))]
        cases.append((model, votes, labels, np.array(breaks)))
    return cases


@pytest.mark.parametrize("method", METHODS)
def test_false_claims(lines, method: str) -> None:
    """Claims that a true classifier breaks are as rare as promised; with exact probabilities there is none."""
    lines = lines[:100] if method == "coupled" else lines
    _, votes, labels, truth = zip(*lines, strict=True)
    options = {"num_labels": 6, "sigma": SIGMA, "method": method}
    claims = certified_radii_batch(votes, labels, Threshold(T, 2), alpha=ALPHA, **options)
    pairs = list(zip(claims, truth, strict=True))
    wrong = sum(bool(np.any((radii.row >= breaks) & np.isfinite(breaks))) for radii, breaks in pairs)
    assert too_many(wrong, len(lines), ALPHA) > 1e-4
    assert sum(int(np.sum(radii.row > 0)) for radii in claims) > len(lines)
    for model, _, own, breaks in lines[:100] if method != "coupled" else ():
        ends, answers = model.pieces()
        chances = interval_probabilities(ends / SIGMA)
        exact = exact_radii(answers, chances / chances.sum(), own, Threshold(T, 2), sigma=SIGMA, method=method).row
        assert np.all((exact <= breaks + 1e-6) | np.isinf(breaks))


def by_a_hair(rng: np.random.Generator, images: int) -> list[np.ndarray]:
    """Pairs of eight labels, every pair equally likely: p = t = 1/4 of each label, or a hair less in L."""
    return list(rng.random((images, 300, 8)).argsort(axis=2)[:, :, :2])


def claimed_by_a_hair(votes: list[np.ndarray], method: str, alpha: float) -> int:
    options = {"num_labels": 8, "sigma": SIGMA, "alpha": alpha, "method": method}
    claims = certified_radii_batch(votes, [range(3)] * len(votes), Threshold(0.25, 2), **options)
    return sum(bool(np.any(claim.row >= 0)) for claim in claims)


@pytest.mark.parametrize(("method", "images"), [("joint", 1500), ("independent", 1500), ("coupled", 100)])
def test_spent_error(method: str, images: int) -> None:
    """Where every label may fail the error is not exceeded; `joint` spends it, and five times the error is seen."""
    votes = by_a_hair(np.random.default_rng(14), images)
    assert too_many(claimed_by_a_hair(votes, method, ALPHA), images, ALPHA) > 1e-4
    if method == "joint":
        assert claimed_by_a_hair(votes, method, ALPHA) > 0.1 * images
        assert too_many(claimed_by_a_hair(votes, method, 0.99), images, ALPHA) < 1e-6


def test_returned_at_most() -> None:
    """A classifier that returns exactly floor(k'/t) labels, all of them at t: no ceiling below that is claimed."""
    votes = [[i % 4] for i in range(400)]
    found = certified_radii(
        np.random.default_rng(1).permutation(votes), [], Threshold(0.25, 1), num_labels=9, sigma=1.0
    )
    assert np.isneginf(found.false[:4]).all()
    assert np.isposinf(found.false[4:]).all()
