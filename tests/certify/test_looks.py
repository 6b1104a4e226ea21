"""Looks at growing numbers of draws: the arguments, and the best over the looks."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.certify.cases import random_ranked, random_sets, votes_and_labels

from multiguard.certify import (
    Looks,
    StoppingRule,
    Threshold,
    TopK,
    certified_radii,
    certified_radii_batch,
    hits_from_ranked,
    look_plan,
)
from multiguard.errors import InvalidInputError

LOOKS = Looks((20, 50, 120), (0.1, 0.2, 0.7))
TOP_K = {"rule": TopK(3, 2), "num_labels": 10, "sigma": 0.5, "alpha": 0.01}
SETS = {"rule": Threshold(0.4), "num_labels": 8, "sigma": 0.5, "alpha": 0.01}


@pytest.mark.parametrize(
    ("draws", "fractions", "message"),
    [
        ((), (), "at least one look"),
        ((10, 20), (1.0,), "one fraction of alpha each"),
        ((20, 10), (0.5, 0.5), "grow from look to look"),
        ((10, 10), (0.5, 0.5), "grow from look to look"),
        ((0, 10), (0.5, 0.5), "whole number"),
        ((1.5, 10), (0.5, 0.5), "whole number"),
        ((10, 20), (0.5, 0.6), "at most 1 together"),
        ((10, 20), (1.0, 0.0), "positive"),
        ((10, 20), (-0.5, 1.0), "positive"),
        ((10, 20), (math.nan, 0.5), "positive"),
    ],
)
def test_refused_looks(draws, fractions, message: str) -> None:
    """Looks that keep no promise are refused."""
    with pytest.raises(InvalidInputError, match=message):
        Looks(draws, fractions)


def test_exact_sum() -> None:
    """Ten fractions of a tenth sum to 1, though not in doubles."""
    assert sum([0.1] * 10) < 1 < sum([0.1] * 10) + 1e-15
    Looks(tuple(range(1, 11)), (0.1,) * 10)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**7), st.integers(1, 1000), st.floats(1.05, 20), st.floats(0.01, 0.99))
def test_plan_ends(most: int, first: int, growth: float, last: float) -> None:
    """Plans begin and end where they should."""
    plan = look_plan(most, first=first, growth=growth, last_fraction=last)
    assert plan.draws[-1] == most
    assert plan.draws[0] >= min(first, most)
    expected = last if len(plan.draws) > 1 else 1.0
    assert expected * (1 - 1e-9) < plan.fractions[-1] <= expected
    assert math.fsum(plan.fractions) <= 1


def test_rounded_fractions() -> None:
    """A plan whose fractions round up still keeps its promise."""
    plan = look_plan(228513, first=1, growth=1.05, last_fraction=0.12604277340957243)
    assert math.fsum(plan.fractions) <= 1
    assert plan.fractions[-1] == pytest.approx(0.12604277340957243)


def test_plan_arguments() -> None:
    """Plans out of range are refused."""
    for wrong in ({"max_draws": 0}, {"max_draws": 10.0}, {"max_draws": 100, "first": 0}):
        with pytest.raises(InvalidInputError, match="whole number"):
            look_plan(**wrong)
    for growth in (1.0, math.inf, math.nan):
        with pytest.raises(InvalidInputError, match="growth"):
            look_plan(1000, growth=growth)
    for fraction in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInputError, match="last_fraction"):
            look_plan(1000, last_fraction=fraction)


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia"])
def test_best_look(method: str) -> None:
    """Radii are the best of the looks, each at its fraction of alpha."""
    rng = np.random.default_rng(0)
    ranked, labels = votes_and_labels(rng, 40, LOOKS.draws)
    batch = certified_radii_batch(iter(ranked), iter(labels), looks=LOOKS, method=method, **TOP_K)
    differs = set()
    for votes, true, found in zip(ranked, labels, batch, strict=True):
        if len(true) == 0:
            assert found.true.shape == (0,)
            continue
        hits = hits_from_ranked(votes, k_prime=2, num_labels=10)
        options = {"rule": TopK(3, 2), "sigma": 0.5, "method": method}
        each = [
            certified_radii(hits[:n], true, alpha=0.01 * fraction, **options).true
            for n, fraction in zip(LOOKS.draws, LOOKS.fractions, strict=True)
            if n <= len(votes)
        ]
        np.testing.assert_array_equal(found.true, np.max(each, axis=0))
        alone = certified_radii(hits, true, looks=LOOKS, alpha=0.01, **options)
        np.testing.assert_array_equal(found.true, alone.true)
        differs.add(int(np.argmax([radii[0] for radii in each])))
    assert len(differs) > 1


def test_early_look() -> None:
    """Votes that turn: what the first fifty draws proved stays proved."""
    ranked = np.repeat([[0, 1], [2, 3]], [50, 70], axis=0)
    early, late = certified_radii_batch([ranked[:50], ranked], [[0], [0]], looks=LOOKS, **TOP_K)
    assert early.true[0] == late.true[0] > 0
    hits = hits_from_ranked(ranked, k_prime=2, num_labels=8)
    early, late = certified_radii_batch([hits[:50], hits], [[0], [0]], looks=LOOKS, **{**SETS, "rule": Threshold(0.6)})
    assert early.true[0] == late.true[0] > 0


def test_best_look_of_sets() -> None:
    """The same for sets."""
    rng = np.random.default_rng(1)
    votes = [random_sets(rng, labels=8, draws=int(rng.choice(LOOKS.draws)), spread=1.5) for _ in range(20)]
    labels = [rng.permutation(8)[: rng.integers(0, 9)] for _ in votes]
    batch = certified_radii_batch(votes, labels, looks=LOOKS, **SETS)
    for hits, true, found in zip(votes, labels, batch, strict=True):
        each = [
            certified_radii(hits[:n], true, Threshold(0.4), sigma=0.5, alpha=0.01 * fraction)
            for n, fraction in zip(LOOKS.draws, LOOKS.fractions, strict=True)
            if n <= len(hits)
        ]
        np.testing.assert_array_equal(found.true, np.max([radii.true for radii in each], axis=0))
        np.testing.assert_array_equal(found.false, np.max([radii.false for radii in each], axis=0))


def test_other_draws() -> None:
    """Votes that do not end at a look are refused."""
    ranked = random_ranked(np.random.default_rng(0), labels=10, depth=3, draws=60, spread=2.0)
    hits = hits_from_ranked(ranked, k_prime=2, num_labels=10)
    with pytest.raises(InvalidInputError, match="60 draws are none of the looks"):
        certified_radii(hits, [0], TopK(3, 2), looks=LOOKS, sigma=0.5)
    with pytest.raises(InvalidInputError, match="image 1: 60 draws are none of the looks"):
        certified_radii_batch([ranked[:50], ranked], [[0], [0]], looks=LOOKS, **TOP_K)
    with pytest.raises(InvalidInputError, match="image 0: 60 draws are none of the looks"):
        StoppingRule(looks=LOOKS, radii=[0.1], **TOP_K).decided([ranked], [[0]])
    with pytest.raises(InvalidInputError, match=r"image 0: .*ranked votes"):
        certified_radii_batch([ranked[:50]], [[0]], looks=LOOKS, **SETS)
    with pytest.raises(InvalidInputError, match=r"image 0: .*exactly k_prime"):
        certified_radii_batch([~hits[:50]], [[0]], looks=LOOKS, **TOP_K)
    with pytest.raises(InvalidInputError, match="alpha"):
        certified_radii(hits[:50], [0], TopK(3, 2), looks=LOOKS, sigma=0.5, alpha=1.5)
