"""Looks at growing numbers of draws: the arguments, the best over the looks, and when to stop."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.certify.cases import random_ranked, random_sets

from multiguard.certify import (
    Looks,
    StoppingRule,
    ThresholdStoppingRule,
    adaptive_radii,
    adaptive_radii_batch,
    adaptive_threshold_radii_batch,
    certified_radii,
    certified_size,
    hits_from_ranked,
    look_plan,
    threshold_radii,
)
from multiguard.certify.bounds import ClopperPearson, Projected
from multiguard.errors import InvalidInputError

LOOKS = Looks((20, 50, 120), (0.1, 0.2, 0.7))
TOP_K = {"num_labels": 10, "k": 3, "k_prime": 2, "sigma": 0.5, "alpha": 0.01}
SETS = {"num_labels": 8, "threshold": 0.4, "sigma": 0.5, "alpha": 0.01}


@pytest.mark.parametrize(
    ("draws", "shares", "says"),
    [
        ((), (), "at least one look"),
        ((10, 20), (1.0,), "one share of alpha each"),
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
def test_looks_that_keep_no_promise(draws, shares, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Looks(draws, shares)


def test_a_tenth_ten_times_is_one() -> None:
    assert sum([0.1] * 10) < 1 < sum([0.1] * 10) + 1e-15
    Looks(tuple(range(1, 11)), (0.1,) * 10)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**7), st.integers(1, 1000), st.floats(1.05, 20), st.floats(0.01, 0.99))
def test_plans_end_where_they_should(most: int, first: int, growth: float, last: float) -> None:
    plan = look_plan(most, first=first, growth=growth, last_fraction=last)
    assert plan.draws[-1] == most
    assert plan.draws[0] >= min(first, most)
    assert plan.shares[-1] == (last if len(plan.draws) > 1 else 1.0)


def test_a_plan_whose_shares_round_up_still_keeps_its_promise() -> None:
    plan = look_plan(228513, first=1, growth=1.05, last_fraction=0.12604277340957243)
    assert math.fsum(plan.shares) <= 1
    assert plan.shares[-1] == pytest.approx(0.12604277340957243)


def test_misuse_of_a_plan() -> None:
    for wrong in ({"max_draws": 0}, {"max_draws": 10.0}, {"max_draws": 100, "first": 0}):
        with pytest.raises(InvalidInputError, match="whole number"):
            look_plan(**wrong)
    for growth in (1.0, math.inf, math.nan):
        with pytest.raises(InvalidInputError, match="growth"):
            look_plan(1000, growth=growth)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInputError, match="last_fraction"):
            look_plan(1000, last_fraction=share)


def votes_and_labels(rng: np.random.Generator, images: int, draws) -> tuple[list[np.ndarray], list[np.ndarray]]:
    ranked = [random_ranked(rng, labels=10, depth=3, draws=int(rng.choice(draws)), spread=2.0) for _ in range(images)]
    popular = [np.argsort(-np.bincount(votes[:, :2].ravel(), minlength=10)) for votes in ranked]
    return ranked, [order[: rng.integers(0, 5)] for order in popular]


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia"])
def test_the_best_of_the_looks_each_at_its_share(method: str) -> None:
    rng = np.random.default_rng(0)
    ranked, labels = votes_and_labels(rng, 40, LOOKS.draws)
    batch = adaptive_radii_batch(iter(ranked), iter(labels), looks=LOOKS, method=method, **TOP_K)
    differs = set()
    for votes, true, found in zip(ranked, labels, batch, strict=True):
        if len(true) == 0:
            assert found.shape == (0,)
            continue
        hits = hits_from_ranked(votes, k_prime=2, num_labels=10)
        options = {"k": 3, "k_prime": 2, "sigma": 0.5, "method": method}
        each = [
            certified_radii(hits[:n], true, alpha=0.01 * share, **options)
            for n, share in zip(LOOKS.draws, LOOKS.shares, strict=True)
            if n <= len(votes)
        ]
        np.testing.assert_array_equal(found, np.max(each, axis=0))
        np.testing.assert_array_equal(found, adaptive_radii(hits, true, looks=LOOKS, alpha=0.01, **options))
        differs.add(int(np.argmax([radii[0] for radii in each])))
    assert len(differs) > 1


def test_an_early_look_may_be_the_best() -> None:
    """Votes that turn: what the first fifty draws proved stays proved."""
    ranked = np.repeat([[0, 1], [2, 3]], [50, 70], axis=0)
    early, late = adaptive_radii_batch([ranked[:50], ranked], [[0], [0]], looks=LOOKS, **TOP_K)
    assert early[0] == late[0] > 0
    hits = hits_from_ranked(ranked, k_prime=2, num_labels=8)
    early, late = adaptive_threshold_radii_batch(
        [hits[:50], hits], [[0], [0]], looks=LOOKS, **{**SETS, "threshold": 0.6}
    )
    assert early.true[0] == late.true[0] > 0


def test_sets_over_the_looks() -> None:
    rng = np.random.default_rng(1)
    votes = [random_sets(rng, labels=8, draws=int(rng.choice(LOOKS.draws)), spread=1.5) for _ in range(20)]
    labels = [rng.permutation(8)[: rng.integers(0, 9)] for _ in votes]
    batch = adaptive_threshold_radii_batch(votes, labels, looks=LOOKS, **SETS)
    for hits, true, found in zip(votes, labels, batch, strict=True):
        each = [
            threshold_radii(hits[:n], true, threshold=0.4, sigma=0.5, alpha=0.01 * share)
            for n, share in zip(LOOKS.draws, LOOKS.shares, strict=True)
            if n <= len(hits)
        ]
        np.testing.assert_array_equal(found.true, np.max([radii.true for radii in each], axis=0))
        np.testing.assert_array_equal(found.false, np.max([radii.false for radii in each], axis=0))


def test_votes_that_do_not_end_at_a_look() -> None:
    ranked = random_ranked(np.random.default_rng(0), labels=10, depth=3, draws=60, spread=2.0)
    hits = hits_from_ranked(ranked, k_prime=2, num_labels=10)
    with pytest.raises(InvalidInputError, match="60 draws are none of the looks"):
        adaptive_radii(hits, [0], looks=LOOKS, k=3, k_prime=2, sigma=0.5)
    with pytest.raises(InvalidInputError, match="image 1: 60 draws are none of the looks"):
        adaptive_radii_batch([ranked[:50], ranked], [[0], [0]], looks=LOOKS, **TOP_K)
    with pytest.raises(InvalidInputError, match="image 0: 60 draws are none of the looks"):
        StoppingRule(LOOKS, radii=[0.1], **TOP_K).decided([ranked], [[0]])
    with pytest.raises(InvalidInputError, match=r"image 0: .*ranked votes"):
        adaptive_threshold_radii_batch([ranked[:50]], [[0]], looks=LOOKS, **SETS)
    with pytest.raises(InvalidInputError, match=r"image 0: .*integers"):
        adaptive_radii_batch([hits[:50]], [[0]], looks=LOOKS, **TOP_K)
    with pytest.raises(InvalidInputError, match="alpha"):
        adaptive_radii(hits[:50], [0], looks=LOOKS, k=3, k_prime=2, sigma=0.5, alpha=1.5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"radii": []}, "one or more"),
        ({"radii": [-0.1]}, "not negative"),
        ({"radii": [math.inf]}, "finite"),
        ({"radii": 0.5}, "one or more"),
        ({"forecast_margin": -1.0}, "forecast_margin"),
        ({"forecast_margin": math.nan}, "forecast_margin"),
        ({"alpha": 0.0}, "alpha"),
        ({"sigma": 0.0}, "sigma"),
    ],
)
def test_misuse_of_a_stopping_rule(change, says: str) -> None:
    for rule, options in ((StoppingRule, TOP_K), (ThresholdStoppingRule, SETS)):
        with pytest.raises(InvalidInputError, match=says):
            rule(LOOKS, **{"radii": [0.5], **options, **change})


def test_what_is_decided_at_once() -> None:
    """All labels certified, no labels at all, the last look; but not what a few more draws would certify."""
    sure = np.tile([0, 1], (120, 1))
    looks = Looks((20, 120), (0.5, 0.5))
    rule = StoppingRule(looks, radii=[0.0, 0.3], **TOP_K)
    assert rule.decided([sure[:20], sure[:20], sure], [[0], [], [0, 1, 5]]) == [False, True, True]
    assert StoppingRule(looks, radii=[0.0], **TOP_K).decided([sure[:20]], [[0]]) == [True]
    assert rule.decided([sure[:20]], [[5]]) == [True]
    certain = StoppingRule(looks, radii=[0.3], **TOP_K, forecast_margin=math.inf)
    assert certain.decided([sure[:20]], [[5]]) == [False]


def finished(rng: np.random.Generator, votes: np.ndarray, labels: np.ndarray, draws: int, kind: bool) -> np.ndarray:
    """The votes with further draws up to `draws`: like those so far, or all on the labels of L."""
    if kind:
        rest = np.tile(np.concatenate([labels, np.setdiff1d(np.arange(10), labels)])[:3], (draws - len(votes), 1))
        rest[:, : min(3, len(labels))] = np.stack(
            [rng.permutation(labels)[: min(3, len(labels))] for _ in range(len(rest))]
        )
    else:
        rest = votes[rng.integers(0, len(votes), draws - len(votes))]
    return np.concatenate([votes, rest])


def test_infinite_kindness_stops_only_what_cannot_rise() -> None:
    """Whatever the draws to come are, an image that was decided certifies no more at the radii asked for."""
    rng = np.random.default_rng(5)
    looks = Looks((60, 90, 100), (0.2, 0.2, 0.6))
    asked = [0.1, 0.4]
    rule = StoppingRule(looks, radii=asked, **TOP_K, forecast_margin=math.inf)
    stopped = 0
    for _ in range(150):
        (votes,), (true,) = votes_and_labels(rng, 1, [90])
        if len(true) == 0 or not rule.decided([votes], [true])[0]:
            continue
        stopped += 1
        has = certified_size(adaptive_radii_batch([votes], [true], looks=looks, **TOP_K)[0], asked)
        for kind in (True, False):
            whole = finished(rng, votes, true, 100, kind)
            assert np.all(certified_size(adaptive_radii_batch([whole], [true], looks=looks, **TOP_K)[0], asked) == has)
    assert stopped > 30


def test_more_kindness_never_stops_earlier() -> None:
    rng = np.random.default_rng(6)
    ranked, labels = votes_and_labels(rng, 150, LOOKS.draws)
    stopped = np.array(
        [
            StoppingRule(LOOKS, radii=[0.2, 0.5], **TOP_K, forecast_margin=z).decided(ranked, labels)
            for z in (0, 1, 3, math.inf)
        ]
    )
    assert np.all(stopped[1:] <= stopped[:-1])
    assert len(set(stopped.sum(axis=1))) > 2
    hits = [random_sets(rng, labels=8, draws=20, spread=1.0) for _ in range(60)]
    stopped = np.array(
        [
            ThresholdStoppingRule(LOOKS, radii=[0.1], **SETS, forecast_margin=z).decided(hits, [[0, 1]] * 60)
            for z in (0, 1, math.inf)
        ]
    )
    assert np.all(stopped[1:] <= stopped[:-1])
    assert stopped[0].sum() > stopped[2].sum()


def test_images_at_different_looks_are_decided_as_each_alone() -> None:
    rng = np.random.default_rng(7)
    ranked, labels = votes_and_labels(rng, 60, LOOKS.draws)
    rule = StoppingRule(LOOKS, radii=[0.2], **TOP_K)
    together = rule.decided(ranked, labels)
    assert together == [rule.decided([votes], [true])[0] for votes, true in zip(ranked, labels, strict=True)]
    assert 0 < sum(together) < 60


@pytest.mark.parametrize("seed", range(8))
def test_a_rule_that_saw_the_earlier_looks_says_what_one_that_did_not_would(seed: int) -> None:
    """What it remembers of an image must be that image's, whichever others were asked about in between."""
    rng = np.random.default_rng(seed)
    votes, labels = votes_and_labels(rng, 12, LOOKS.draws[-1:])
    votes[1] = votes[0].copy()
    lasting = StoppingRule(LOOKS, radii=[0.05, 0.3], **TOP_K)
    for n in LOOKS.draws:
        for part in np.array_split(rng.permutation(len(votes)), 3):
            asked = [votes[i][:n] for i in part], [labels[i] for i in part]
            assert lasting.decided(*asked) == StoppingRule(LOOKS, radii=[0.05, 0.3], **TOP_K).decided(*asked)


def test_every_look_to_come_counts() -> None:
    """A last look with next to no alpha does not hide a better one before it."""
    votes = np.tile([0, 1], (20, 1))
    starved = Looks((20, 120, 121), (0.1, 0.8, 1e-190))
    assert StoppingRule(starved, radii=[0.5], **TOP_K).decided([votes], [[0]]) == [False]
    assert StoppingRule(Looks((20, 121), (0.1, 1e-190)), radii=[0.5], **TOP_K).decided([votes], [[0]]) == [True]


def test_sets_that_are_decided() -> None:
    looks = Looks((20, 400), (0.5, 0.5))
    hits = np.zeros((20, 8), dtype=np.bool_)
    hits[:, 0] = True
    rule = ThresholdStoppingRule(looks, radii=[0.4], **SETS)
    assert rule.decided([hits, hits], [[0], [1]]) == [False, False]
    hopeless = hits.copy()
    hopeless[:, 1:] = np.arange(20)[:, None] % 2 == 0
    hopeless[:, 0] = False
    assert rule.decided([hopeless], [[0]]) == [True]


def test_forecasts() -> None:
    """No forecast_margin is the frequency so far; infinite forecast_margin is the best that can come."""
    mass, draws = np.array([[10.0, 0.0, 20.0]]), np.array([[20.0]])
    plain, best, exact = Projected(100, 0.0), Projected(100, math.inf), ClopperPearson()
    to = np.array([[100.0]])
    np.testing.assert_array_equal(plain.lower(mass, draws, 0.01), exact.lower(5 * mass, to, 0.01))
    np.testing.assert_array_equal(plain.upper(mass, draws, 0.01), exact.upper(5 * mass, to, 0.01))
    np.testing.assert_array_equal(best.lower(mass, draws, 0.01), exact.lower(mass + 80, to, 0.01))
    np.testing.assert_array_equal(best.upper(mass, draws, 0.01), exact.upper(mass, to, 0.01))
