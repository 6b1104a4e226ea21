"""When more draws can be expected to prove more; and that the claims hold whoever decides when the draws end."""

import math

import numpy as np
import pytest
from tests.certify.cases import Lines, random_sets, too_many, votes_and_labels
from tests.certify.outlooks import Outlook, outlooks
from tests.certify.worst_cases import Staircase, floor_of_two, top_two_of_five, two_labels

from multiguard.certify import (
    Gaussian,
    Rule,
    Threshold,
    TopK,
    certified_radii,
    certified_radii_batch,
    settled_by_betting,
)
from multiguard.certify.betting import needed_r
from multiguard.errors import InvalidInputError

TOP_K = {"rule": TopK(3, 2), "num_labels": 10, "sigma": 0.5, "alpha": 0.01}
SETS = {"rule": Threshold(0.4), "num_labels": 8, "sigma": 0.5, "alpha": 0.01}
STOPS = (50, 100, 200, 300, 400)


def outlook_of(votes, labels, radii=(0.2,), **options) -> list[Outlook]:
    return forecast(votes, labels, radii=radii, **{**TOP_K, **options})


def forecast(votes, labels, rule, sigma, **options) -> list[Outlook]:
    return outlooks(votes, labels, rule, noise=Gaussian(sigma), **options)


def test_arguments() -> None:
    """Arguments out of range raise an error."""
    options = {**TOP_K, "draws": 100, "forecast_margin": 1.0, "radii": [0.2]}
    for change, says in (({"radii": []}, "at least one"), ({"alpha": 0.0}, "alpha"), ({"rule": TopK(11, 1)}, "k must")):
        with pytest.raises(InvalidInputError, match=says):
            settled_by_betting([np.tile([0, 1], (50, 1))], [[0]], **options | change)


@pytest.mark.parametrize("rule", ["top-k", "threshold"])
def test_claimed(rule: str) -> None:
    """What is certified at a requested radius is claimed there, and what is claimed needs no more draws."""
    rng, proved = np.random.default_rng(1), 0
    if rule == "top-k":
        options = TOP_K
        votes, labels = votes_and_labels(rng, 30, [100, 200, 400])
    else:
        options = SETS
        votes = [random_sets(rng, labels=8, draws=300, spread=1.0) for _ in range(15)]
        labels = [np.arange(2)] * 15
    radii = [0.3, 0.1]
    found = forecast(votes, labels, radii=radii, **options)
    for outlook, claim in zip(found, certified_radii_batch(votes, labels, method="betting", **options), strict=True):
        rows = claim.true if claim.false is None else np.concatenate([claim.true, claim.false[::-1]])
        certified = rows[:, None] >= radii
        assert outlook.claimed.shape == certified.shape
        assert np.all(outlook.claimed | ~certified)
        assert not np.any(outlook.reachable(10**6, 3.0) & outlook.claimed)
        assert not np.any(outlook.reachable(outlook.draws, math.inf))
        proved += int(certified.sum())
    assert proved > 10


def test_round_radius() -> None:
    """A radius on the list of r needs that r, one just above it the next; a certificate has such radii exactly."""
    radii = np.array([0.0, 0.25, math.nextafter(0.25, 1), 3.0])
    np.testing.assert_array_equal(needed_r(radii, Gaussian(0.5)), [0.0, 0.5, 0.52, 10.0])
    votes = np.random.default_rng(0).permutation([[0]] * 380 + [[1]] * 20)
    options = {"num_labels": 2, "sigma": 0.5, "method": "betting"}
    assert float(certified_radii(votes, [0], TopK(1, 1), **options).true[0] * 100).is_integer()


def test_settled_images() -> None:
    """Settled: everything claimed, no labels, no chance, a radius beyond the list. Open: what draws would prove."""
    sure, likely = np.zeros((300, 1), np.int64), np.arange(100)[:, None] % 4 // 3
    votes, labels, one = [sure, sure[:50], sure, likely], [[0], [], [1], [0]], {"rule": TopK(1, 1)}
    reached = [bool(np.any(outlook.reachable(10_000, 2.0))) for outlook in outlook_of(votes, labels, **one)]
    assert reached == [False, False, False, True]
    assert not np.any(outlook_of([sure], [[0]], radii=[50.0], **one)[0].reachable(10_000, 2.0))
    assert np.any(outlook_of([sure[:50]], [[1]], **one)[0].reachable(10_000, math.inf))


@pytest.mark.parametrize("rule", ["top-k", "threshold"])
def test_settled_sooner(rule: str) -> None:
    """What is found from as few claims as possible is what all claims say, and images of both kinds are there."""
    rng = np.random.default_rng(2)
    votes, labels = votes_and_labels(rng, 16, [50, 100, 200, 400])
    options = TOP_K
    if rule == "threshold":
        votes = [random_sets(rng, labels=8, draws=n, spread=1.0) for n in (50, 100, 400) for _ in range(3)]
        options, labels = SETS, [np.arange(2)] * len(votes)
    whole = forecast(votes, labels, radii=[0.3, 0.1], **options)
    for margin in (0.0, 1.0, math.inf):
        seen = set()
        for most in (400, 1000, 20_000):
            more = {"draws": most, "forecast_margin": margin, "radii": [0.3, 0.1]}
            found = settled_by_betting(votes, labels, **more, **options)
            assert found == [not each.reachable(most, margin).any() for each in whole]
            seen |= set(found)
        assert seen == {True, False}


def test_first_draws_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of the first draws of an image changes no decision about it or another one."""
    votes, labels = votes_and_labels(np.random.default_rng(3), 12, [400])
    more = {"draws": 2000, "forecast_margin": 1.0, "radii": [0.3, 0.1], **TOP_K}

    def decisions() -> list[bool]:
        images = list(zip(votes, labels, strict=True))
        return [settled_by_betting([each[:n]], [true], **more)[0] for n in STOPS for each, true in images]

    kept = decisions()
    assert decisions() == kept
    monkeypatch.setattr("multiguard.certify.wealth._MOST_HOPEFUL", -1)  # nothing is kept
    assert decisions() == kept
    assert set(kept) == {True, False}


def test_larger_margin() -> None:
    """A larger forecast margin and more draws never make less reachable."""
    votes, labels = votes_and_labels(np.random.default_rng(6), 40, [50, 100])
    found = outlook_of(votes, labels, radii=[0.2, 0.5])
    counts = []
    for margin in (0.0, 1.0, 3.0, math.inf):
        near, far = ([outlook.reachable(draws, margin) for outlook in found] for draws in (500, 5000))
        assert all(np.all(b >= a) for a, b in zip(near, far, strict=True))
        counts.append(sum(int(each.sum()) for each in near))
    assert counts == sorted(counts)
    assert len(set(counts)) > 2


# ------------------------------------------------------------------------------------------------ false claims


# A classifier that breaks its claim exactly at R = 0.25, r = 0.5; the claim is the first row of an outlook.
WORST: dict[str, tuple[Staircase, Rule, list[int]]] = {
    "half-space": (two_labels(0.5), TopK(1, 1), [0]),
    "staircase": (top_two_of_five(0.5), TopK(2, 2), [0]),
    "floor": (floor_of_two(0.5, 0.4), Threshold(0.4), [0, 1]),
}


def stopped_when_claimed(votes: np.ndarray, labels: list[int], rule: Rule, alpha: float) -> int:
    """The adversary's stop: the first at which the broken claim seems to be made, else the last."""
    options = {"num_labels": votes.shape[1], "sigma": 0.5, "alpha": alpha, "radii": [0.25]}
    for draws in STOPS:
        if forecast([votes[:draws]], [labels], rule, **options)[0].claimed[0, 0]:
            return draws
    return STOPS[-1]


@pytest.mark.parametrize("case", WORST)
def test_adversarial_stops(case: str) -> None:
    """Images stop, or a run is extended, until the broken claim is made: it is made as rarely as promised."""
    (model, rule, labels), alpha = WORST[case], 0.4
    rng, images, wrong = np.random.default_rng([7, round(100 * alpha)]), 60, 0
    for _ in range(images):
        votes = model.votes(rng, STOPS[-1])
        end = stopped_when_claimed(votes, labels, rule, alpha)
        options = {"num_labels": votes.shape[1], "sigma": 0.5, "alpha": alpha, "method": "betting"}
        wrong += bool(certified_radii(votes[:end], labels, rule, **options).true[0] >= 0.25)
    assert too_many(wrong, images, alpha) > 1e-4


def test_caught_full_alpha() -> None:
    """A method for a fixed number of draws, with all of alpha at each stop, is caught."""
    model, rule, labels = WORST["half-space"]
    rng, images = np.random.default_rng(9), 300
    votes = [model.votes(rng, 400) for _ in range(images)]
    false = np.zeros(images, dtype=np.bool_)
    for draws in range(20, 401, 20):
        options = {"num_labels": 2, "sigma": 0.5, "alpha": 0.2, "method": "paper"}
        claims = certified_radii_batch([each[:draws] for each in votes], [labels] * images, rule, **options)
        false |= np.array([claim.true[0] >= 0.25 for claim in claims])
    assert too_many(int(false.sum()), images, 0.2) < 1e-6


def test_stopped_images() -> None:
    """Linear classifiers in which every size truly breaks somewhere, stopped once their claims are settled."""
    rng, alpha = np.random.default_rng(8), 0.2
    options = {"rule": TopK(2, 1), "num_labels": 5, "sigma": 0.5, "alpha": alpha}
    models = [Lines.random(rng, labels=5, k_prime=1, sigma=0.5) for _ in range(40)]
    labels = [np.argsort(-model.probabilities(np.zeros(1))[0])[:2] for model in models]
    wrong, ends = 0, set()
    for model, true in zip(models, labels, strict=True):
        votes = model.ranked(0.5 * rng.standard_normal(STOPS[-1]))
        for end in STOPS:
            (outlook,) = forecast([votes[:end]], [true], radii=[0.1, 0.4], **options)
            if not np.any(outlook.reachable(STOPS[-1], 1.0)):
                break
        ends.add(end)
        claims = certified_radii(votes[:end], true, method="betting", **options).true
        breaks = model.break_radii(true, 2, furthest=2.0)
        wrong += bool(np.any((claims >= breaks) & np.isfinite(breaks)))
    assert len(ends) > 3
    assert too_many(wrong, len(models), alpha) > 1e-4
