"""Floors and ceilings of g_t: against loops, against the exact limit, and where a formula of their own exists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from tests.certify import fifty_digits
from tests.certify.cases import random_sets
from tests.certify.hard_cases import NoiseOf, ballot_of, check_threshold, half_uniform, moved
from tests.certify.limit import ceiling_limit, floor_limit

from multiguard.certify import (
    Gaussian,
    Threshold,
    certified_radii,
    exact_radii,
)


def random_sets_with_chances(rng: np.random.Generator, *, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Some different sets of labels, as boolean rows, and a random probability for each."""
    sets = np.unique(rng.random((10, labels)) < rng.random(labels), axis=0)
    return sets, rng.dirichlet(np.full(len(sets), rng.choice([0.2, 1.0])))


@pytest.mark.parametrize("noise", [Gaussian, half_uniform], ids=["gaussian", "uniform"])
@pytest.mark.parametrize(
    ("c", "d", "draws", "threshold"),
    [(3, 1, 60, 0.5), (5, 3, 200, 0.5), (6, 4, 300, 0.2), (6, 2, 100, 0.4), (6, 0, 150, 0.3), (5, 5, 200, 0.6)],
)
def test_literal_floors(
    c: int, d: int, draws: int, threshold: float, noise: NoiseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floors and ceilings agree with loops that follow the formulas."""
    if noise is half_uniform:
        monkeypatch.setattr(fifty_digits, "shifted", moved)
    rng = np.random.default_rng([c, d, draws])
    for spread in (0.7, 2.0):
        hits = random_sets(rng, labels=c, draws=draws, spread=spread)
        labels = tuple(sorted(int(i) for i in np.argsort(-hits.sum(axis=0) - rng.random(c))[:d]))
        check_threshold(ballot_of(hits), labels, threshold, 2.0, 0.02, noise)


def taking_turns(rng: np.random.Generator, *, labels: int, together: int, draws: int) -> np.ndarray:
    """Each draw hits `together` labels, now and then one more or less: pairs prove more than single labels."""
    hits = rng.random((draws, labels)).argsort(axis=1) < together
    return hits ^ (rng.random(hits.shape) < 0.004)


@pytest.mark.parametrize(("c", "d", "together", "threshold"), [(4, 4, 3, 0.6), (6, 1, 2, 0.55), (7, 3, 3, 0.33)])
def test_literal_turns(c: int, d: int, together: int, threshold: float) -> None:
    """The same where pairs prove more than single labels."""
    rng = np.random.default_rng([c, d])
    hits = taking_turns(rng, labels=c, together=together, draws=400)
    check_threshold(ballot_of(hits), tuple(range(d)), threshold, 1.0, 0.02)


def test_few_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer suspects than labels outside L: sets that hold another label are bounded by that label."""
    monkeypatch.setattr("multiguard.certify.draws.MOST_SUSPECTS", 2)
    rng = np.random.default_rng(1)
    # The second kind never hits two labels at once: pairs of suspects are refuted far sooner than any other pair.
    some = [(random_sets(rng, labels=6, draws=150, spread=1.0), 0.4) for _ in range(10)]
    one = [(np.eye(6, dtype=np.bool_)[rng.integers(0, 6, 900)], 0.35) for _ in range(3)]
    for hits, threshold in some + one:
        check_threshold(ballot_of(hits), (0,), threshold, 1.0, 0.02, suspects=2)


@pytest.mark.parametrize("c", [4, 8, 20])
def test_joint_above_independent(c: int) -> None:
    """With exact probabilities joint is never below independent, also for d > 12."""
    rng = np.random.default_rng(c)
    higher = {"true": 0, "false": 0}
    for _ in range(6):
        sets, chances = random_sets_with_chances(rng, labels=c)
        labels = np.argsort(-(chances @ sets))[: int(rng.integers(0, c + 1))]
        for threshold in (0.2, 0.5):
            joint, single = (
                exact_radii(sets, chances, labels, Threshold(threshold), sigma=1.0, method=m)
                for m in ("joint", "independent")
            )
            for side in higher:
                ours, theirs = getattr(joint, side), getattr(single, side)
                assert ours.shape == theirs.shape == ((len(labels),) if side == "true" else (c - len(labels),))
                # Beyond 6 sigma doubles cannot tell a probability from 1.
                assert np.all(ours >= np.minimum(theirs, 6) - 1e-9)
                higher[side] += np.any((ours > theirs + 1e-3) & (ours < 6))
    assert higher["true"] > 0
    assert higher["false"] > 0


def test_exact_limit() -> None:
    """No claim reaches beyond the radius at which some classifier with the same votes breaks it."""
    ratios: dict[str, list[float]] = {"joint": [], "independent": []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sets, chances = random_sets_with_chances(rng, labels=4)
        chances = 0.99 * chances + 0.01 / len(sets)
        labels = sorted(int(i) for i in np.argsort(-(chances @ sets))[:2])
        radii = {m: exact_radii(sets, chances, labels, Threshold(0.4), sigma=1.0, method=m) for m in ratios}
        claims = [("true", e, floor_limit(sets, chances, labels, threshold=0.4, e=e + 1)) for e in range(2)]
        claims += [("false", m, ceiling_limit(sets, chances, labels, threshold=0.4, m=m)) for m in range(2)]
        for side, at, limit in claims:
            for method, found in ratios.items():
                proved = getattr(radii[method], side)[at]
                assert proved <= limit + 1e-6 or np.isposinf(limit), (seed, side, at, method)
                if np.isfinite(limit) and limit > 0.05:
                    found.append(max(float(proved), 0.0) / limit)
    joint, independent = (np.mean(found) for found in ratios.values())
    assert len(ratios["joint"]) >= 10
    assert joint > independent
    assert joint > 0.9


def test_exclusive_labels() -> None:
    """Two wrong labels at 0.4, never together: one may pass 0.5 soon, both only after 0.8 has become 1."""
    sets, chances = np.array([[True, False], [False, True], [False, False]]), np.array([0.4, 0.4, 0.2])
    joint, single = (
        exact_radii(sets, chances, [], Threshold(0.5), sigma=1.0, method=m).false for m in ("joint", "independent")
    )
    np.testing.assert_allclose(single, -ndtri(0.4), atol=1e-9)
    assert joint[0] == pytest.approx(-ndtri(0.4), abs=1e-9)
    assert joint[1] > 3


def test_alternating_labels() -> None:
    """Two true labels at 0.6, one of them always there: at least one stays at any radius."""
    sets, chances = np.array([[True, False], [False, True], [True, True]]), np.array([0.4, 0.4, 0.2])
    joint, single = (
        exact_radii(sets, chances, [0, 1], Threshold(0.5), sigma=1.0, method=m).true for m in ("joint", "independent")
    )
    np.testing.assert_allclose(single, ndtri(0.6), atol=1e-9)
    assert joint[0] > 3


def test_probability_at_threshold() -> None:
    """p = t exactly: the label is in, but any perturbation may push it out; outside L it is not out."""
    sets, chances = np.array([[True], [False]]), np.array([0.5, 0.5])
    assert exact_radii(sets, chances, [0], Threshold(0.5), sigma=1.0).true[0] <= 0
    assert np.isneginf(exact_radii(sets, chances, [], Threshold(0.5), sigma=1.0).false[0])


@st.composite
def set_votes(draw: st.DrawFn):
    c = draw(st.integers(1, 16))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hits = random_sets(rng, labels=c, draws=draw(st.sampled_from([1, 20, 300])), spread=draw(st.sampled_from([0.5, 3])))
    d = draw(st.integers(0, c))
    return hits, rng.permutation(c)[:d], draw(st.sampled_from([0.05, 0.5, 0.8]))


def radii_of(case, **options) -> tuple[np.ndarray, np.ndarray]:
    hits, labels, threshold = case
    found = certified_radii(hits, labels, Threshold(threshold), **{"sigma": 0.5, "alpha": 0.01, **options})
    return found.true, found.false


@settings(max_examples=20, deadline=None)
@given(set_votes(), st.sampled_from(["joint", "independent"]))
def test_shape_and_order(case, method: str) -> None:
    """Floors never rise, ceilings never fall; more alpha proves no less, and radii scale with sigma."""
    hits, labels, _ = case
    true, false = radii_of(case, method=method)
    assert true.shape == (len(labels),)
    assert false.shape == (hits.shape[1] - len(labels),)
    assert np.all(true[1:] <= true[:-1])
    assert np.all(false[1:] >= false[:-1])
    for radii in (true, false):
        assert np.all((radii >= 0) | np.isneginf(radii))
    for more, fewer in zip(radii_of(case, method=method, alpha=0.02), (true, false), strict=True):
        assert np.all(more >= fewer)
    for twice, once in zip(radii_of(case, method=method, sigma=1.0), (true, false), strict=True):
        np.testing.assert_allclose(twice, 2 * once, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(set_votes())
def test_joint_above_its_singles(case) -> None:
    """Nine tenths of alpha are for single floors, seven for single ceilings: the rest can only add."""
    for side, share in ((0, 0.9), (1, 0.7)):
        single = radii_of(case, method="independent", alpha=share * 0.01)[side]
        assert np.all(radii_of(case)[side] >= single - 1e-9)
