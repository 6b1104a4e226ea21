"""Floors and ceilings of g_t: against loops, against the exact limit, and where a formula of their own exists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import ndtr, ndtri
from tests.certify import fifty_digits
from tests.certify.cases import random_sets
from tests.certify.fifty_digits import DIGITS, shifted
from tests.certify.hard_cases import NoiseOf, ballot_of, check_threshold, half_uniform, moved
from tests.certify.limit import ceiling_limit, floor_limit

from multiguard.certify import (
    Gaussian,
    Threshold,
    certified_radii,
    clopper_pearson_lower,
    clopper_pearson_upper,
    exact_radii,
    label_radii,
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
    """Floors and ceilings are those of loops that follow the formulas."""
    if noise is half_uniform:
        monkeypatch.setattr(fifty_digits, "shifted", moved)
    rng = np.random.default_rng([c, d, draws])
    for spread in (0.7, 2.0):
        hits = random_sets(rng, labels=c, draws=draws, spread=spread)
        labels = tuple(sorted(int(i) for i in np.argsort(-hits.sum(axis=0) - rng.random(c))[:d]))
        check_threshold(ballot_of(hits), labels, threshold, 2.0, 0.02, noise)


def taking_turns(rng: np.random.Generator, *, labels: int, together: int, draws: int) -> np.ndarray:
    """Each draw hits so many labels, any of them, one now and then a label more or less: pairs prove more than one."""
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
    for _ in range(15):
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


def test_tight_limit() -> None:
    """One label: the certificate is tight, so the limit lies at it."""
    sets, chances = np.array([[True], [False]]), np.array([0.9, 0.1])
    kept = exact_radii(sets, chances, [0], Threshold(0.5), sigma=1.0).true[0]
    assert kept == pytest.approx(ndtri(0.9), abs=1e-9)
    assert kept <= floor_limit(sets, chances, [0], threshold=0.5, e=1) < kept + 0.06
    barred = exact_radii(sets, chances[::-1], [], Threshold(0.5), sigma=1.0).false[0]
    assert barred == pytest.approx(ndtri(0.9), abs=1e-9)
    assert barred <= ceiling_limit(sets, chances[::-1], [], threshold=0.5, m=0) < barred + 0.06


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


@pytest.mark.parametrize(("hits", "draws", "threshold"), [(980, 1000, 0.5), (620, 1000, 0.6), (40, 40, 0.1)])
def test_single_label(hits: int, draws: int, threshold: float) -> None:
    """One label has a closed formula, for staying in and for staying out."""
    column = (np.arange(draws) < hits)[:, None]
    sigma, alpha = 0.25, 0.01
    low, high = clopper_pearson_lower(hits, draws, alpha), clopper_pearson_upper(draws - hits, draws, alpha)
    options = {"num_labels": 1, "sigma": sigma}
    kept = label_radii(column, [0], Threshold(threshold), alpha=alpha, **options)[0]
    assert kept == certified_radii(column, [0], Threshold(threshold), alpha=2 * alpha, **options).true[0]
    barred = certified_radii(~column, [], Threshold(1 - threshold), alpha=2 * alpha, **options).false[0]
    expected = sigma * (ndtri(low) - ndtri(threshold))
    assert kept == pytest.approx(expected if expected > 0 else -np.inf, abs=1e-9)
    assert kept == barred or kept == pytest.approx(barred, abs=1e-9)
    assert np.isneginf(certified_radii(column, [], Threshold(threshold), alpha=2 * alpha, **options).false[0])
    if np.isfinite(kept):
        with mp.workdps(DIGITS):
            r, further = (mpf(float(kept)) / mpf(sigma) + beyond for beyond in (0, mpf(10) ** -8))
            assert shifted(mpf(float(low)), -r) >= threshold > shifted(mpf(float(low)), -further)
            r = mpf(float(barred)) / mpf(sigma)
            assert shifted(mpf(float(high)), r) < 1 - mpf(threshold) + mpf(10) ** -16


def test_probability_at_threshold() -> None:
    """p = t exactly: the label is in, but any perturbation may push it out; outside L it is not out."""
    sets, chances = np.array([[True], [False]]), np.array([0.5, 0.5])
    assert exact_radii(sets, chances, [0], Threshold(0.5), sigma=1.0).true[0] <= 0
    assert np.isneginf(exact_radii(sets, chances, [], Threshold(0.5), sigma=1.0).false[0])


def test_implied_ceilings() -> None:
    """Labels never hit: the strictest ceiling has the best level, and implies the others."""
    hits = np.zeros((200, 10), dtype=np.bool_)
    hits[:, :2] = True
    found = certified_radii(hits, [0, 1], Threshold(0.5), sigma=1.0)
    assert np.all(found.false == found.false[0])
    assert found.false[0] == pytest.approx(-ndtri(clopper_pearson_upper(0, 200, 0.0005 * 0.3 * 7 / 12)), abs=1e-9)
    assert (
        found.true[0] == found.true[1] == pytest.approx(ndtri(clopper_pearson_lower(200, 200, 0.0005 * 0.45)), abs=1e-9)
    )


def test_implied_floors() -> None:
    """Three labels that take turns with three others: any four hold a pair of which one is there, in 29 draws of 30.

    The pairs of four labels, at a / 36 each, prove the floor 3; those of five, at a / 80, less of the floor 2.
    """
    hits = np.zeros((300, 6), dtype=np.bool_)
    hits[:145, ::2] = True
    hits[145:290, 1::2] = True
    found = certified_radii(hits, range(6), Threshold(0.4), sigma=1.0)
    one_floor = 0.0005 * 0.1 / 5
    radii = [ndtri(clopper_pearson_lower(290, 300, one_floor / bounds)) - ndtri(0.8) for bounds in (30, 36, 36)]
    np.testing.assert_allclose(found.true[:3], radii, atol=1e-9)
    assert np.all(found.true[3:] < 0.2)


def test_floor_layers() -> None:
    """Seven of 14 labels in every draw: their 7 layers are certain, each bounded once for all floors."""
    hits = np.random.default_rng(5).random((500, 14)).argsort(axis=1) < 7
    found = certified_radii(hits, range(14), Threshold(0.3), sigma=1.0)
    kept = clopper_pearson_lower(500, 500, 0.0005 * 0.1 / 14)
    assert found.true[0] == pytest.approx(ndtri(kept) - ndtri(0.6), abs=1e-9)
    assert found.true[1] == pytest.approx(ndtri(kept) - ndtri(13 * 0.3 / 6), abs=1e-9)


def test_ceilings_beyond_suspects() -> None:
    """Nine labels outside L hit in half of the draws, one never: at most nine come in."""
    hits = np.zeros((400, 10), dtype=np.bool_)
    hits[::2, :9] = True
    found = certified_radii(hits, [], Threshold(0.5), sigma=1.0)
    assert np.all(np.isneginf(found.false[:9]))
    assert found.false[9] == pytest.approx(-ndtri(clopper_pearson_upper(0, 400, 0.0005 * 0.7 / 10)), abs=1e-9)


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


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=50, deadline=None)
@given(set_votes())
def test_joint_above_its_singles(case) -> None:
    """Nine tenths of alpha are for single floors, seven for single ceilings: the rest can only add."""
    for side, share in ((0, 0.9), (1, 0.7)):
        single = radii_of(case, method="independent", alpha=share * 0.01)[side]
        assert np.all(radii_of(case)[side] >= single - 1e-9)


@settings(max_examples=40, deadline=None)
@given(set_votes(), st.integers(0, 2**32))
def test_order_invariance(case, seed: int) -> None:
    """The order of draws and labels does not matter."""
    hits, labels, threshold = case
    rng = np.random.default_rng(seed)
    mixed = (rng.permutation(hits, axis=0), rng.permutation(labels), threshold)
    for one, other in zip(radii_of(case), radii_of(mixed), strict=True):
        np.testing.assert_array_equal(one, other)


def test_hundreds_of_labels() -> None:
    """Hundreds of labels, of which few are hit."""
    rng = np.random.default_rng(4)
    hits = np.zeros((1000, 600), dtype=np.bool_)
    hits[:, :3] = True
    hits[:, 3:10] = rng.random((1000, 7)) < 0.6
    found = certified_radii(hits, [0, 1, 2], Threshold(0.5), sigma=1.0)
    assert found.true[2] > 1
    assert found.false.shape == (597,)
    assert np.isneginf(found.false[0])
    assert found.false[7] > 1
    assert np.all(ndtr(-found.false[7:]) > 0)
