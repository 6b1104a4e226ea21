"""Bands: the enumerated certificate against every choice that an attacker has, in small cases."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiguard.certify import (
    BandAblation,
    Rule,
    Threshold,
    TopK,
    Uniform,
    certified_radii,
    exact_radii,
    hits_from_ranked,
)
from multiguard.errors import InvalidInputError

Answers = list[set[int]]


def met(noise: BandAblation, side: int, first: int) -> list[int]:
    """The bands that share a column with the patch of this side whose first column is this one."""
    patch = set(range(first, first + side))
    return [s for s in range(noise.columns) if patch & {(s + i) % noise.columns for i in range(noise.width)}]


def worst_sizes(answers: Answers, labels: set[int], rule: Rule, c: int) -> tuple[int, int]:
    """The fewest labels of L and the most others that the smoothed classifier may return for these answers.

    Ties of the top-k rule go to the other labels.
    """
    votes = [sum(label in answer for answer in answers) for label in range(c)]
    if isinstance(rule, TopK):
        returned = sorted(range(c), key=lambda label: (-votes[label], label in labels))[: rule.k]
    else:
        # t as the decimal number that it is written as: hundredths here
        returned = [label for label in range(c) if 100 * votes[label] >= round(100 * rule.t) * len(answers)]
    kept = sum(label in labels for label in returned)
    return kept, len(returned) - kept


def attacked(answers: Answers, labels: set[int], rule: Rule, c: int, noise: BandAblation, side: int) -> tuple[int, int]:
    """The worst over every patch position and everything that the bands which meet it may answer."""
    sizes = range(c + 1) if rule.k_prime is None else [rule.k_prime]
    possible = [set(chosen) for size in sizes for chosen in combinations(range(c), size)]
    fewest, most = c, 0
    for first in range(noise.columns - side + 1):
        own = met(noise, side, first)
        for forged in product(possible, repeat=len(own)):
            changed = dict(zip(own, forged, strict=True))
            kept, entered = worst_sizes([changed.get(s, a) for s, a in enumerate(answers)], labels, rule, c)
            fewest, most = min(fewest, kept), max(most, entered)
    return fewest, most


@st.composite
def top_k_cases(draw) -> tuple[Answers, set[int], TopK, int, BandAblation]:
    """Votes of few bands over few labels."""
    c, columns = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    k_prime, k, d = (draw(st.integers(1, most)) for most in (min(2, c), c, c))
    width = draw(st.integers(1, 2))
    noise = BandAblation(min(width, columns), columns)
    favourite = draw(st.permutations(range(c)))[:k_prime]
    own = st.one_of(st.just(set(favourite)), st.sampled_from([set(s) for s in combinations(range(c), k_prime)]))
    answers = draw(st.lists(own, min_size=columns, max_size=columns))
    return answers, set(draw(st.permutations(range(c)))[:d]), TopK(k, k_prime), c, noise


def hits_of(answers: Answers, c: int) -> np.ndarray:
    """(bands, labels) which labels each band returned."""
    return np.array([[label in answer for label in range(c)] for answer in answers])


@settings(max_examples=120, deadline=None)
@given(top_k_cases())
def test_every_top_k_attack(case: tuple[Answers, set[int], TopK, int, BandAblation]) -> None:
    """A size is claimed up to the side before the first that some attack breaks, where votes need not go to L."""
    answers, labels, rule, c, noise = case
    radii = certified_radii(hits_of(answers, c), sorted(labels), rule, noise=noise, method="enumerated").true
    for side in range(noise.columns + 1):
        if len(met(noise, side, 0)) > 4:
            break
        fewest, _ = attacked(answers, labels, rule, c, noise, side)
        claimed = int(np.sum(radii >= side))
        assert claimed <= fewest
        if fewest < min(len(labels), rule.k) and rule.k_prime <= c - len(labels) + fewest:
            assert claimed == fewest


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_threshold_attack(data: st.DataObject) -> None:
    """Floors and ceilings are claimed exactly as far as no attack breaks them."""
    c, columns = 2, data.draw(st.integers(2, 6))
    noise = BandAblation(data.draw(st.integers(1, 2)), columns)
    answers = data.draw(st.lists(st.sets(st.integers(0, c - 1)), min_size=columns, max_size=columns))
    labels, rule = (
        data.draw(st.sets(st.integers(0, c - 1))),
        Threshold(data.draw(st.sampled_from([0.1, 0.25, 0.5, 0.8]))),
    )
    found = certified_radii(hits_of(answers, c), sorted(labels), rule, noise=noise, method="enumerated")
    assert found.false is not None
    for side in range(columns + 1):
        if len(met(noise, side, 0)) > 4:
            break
        fewest, most = attacked(answers, labels, rule, c, noise, side)
        assert np.sum(found.true >= side) == fewest
        assert np.sum(found.false < side) == most


@settings(max_examples=80, deadline=None)
@given(top_k_cases(), st.sampled_from([0.1, 0.25, 0.34, 0.5, 0.8]))
def test_every_ranked_threshold_attack(case: tuple[Answers, set[int], TopK, int, BandAblation], t: float) -> None:
    """The same with k' labels per band: a ceiling is exact, as other labels share k' votes of each attacked band."""
    answers, labels, top_k, c, noise = case
    rule = Threshold(t, top_k.k_prime)
    found = certified_radii(hits_of(answers, c), sorted(labels), rule, noise=noise, method="enumerated")
    assert found.false is not None
    for side in range(noise.columns + 1):
        if len(met(noise, side, 0)) > 4:
            break
        fewest, most = attacked(answers, labels, rule, c, noise, side)
        assert np.sum(found.true >= side) <= fewest
        assert np.sum(found.false < side) == most


@pytest.mark.parametrize("method", ["joint", "paper"])
@pytest.mark.parametrize("rule", [TopK(3, 2), TopK(2, 1), Threshold(0.45)], ids=str)
def test_stronger_than_variation(rule: Rule, method: str) -> None:
    """Every position of the patch proves at least what the total variation D of any position proves."""
    if method == "paper" and isinstance(rule, Threshold):
        method = "independent"
    rng, more = np.random.default_rng(4), 0
    for _ in range(25):
        columns = int(rng.integers(6, 20))
        noise = BandAblation(int(rng.integers(1, 4)), columns)
        scores = 2 * rng.standard_normal(6) + rng.standard_normal((columns, 6))
        hits = scores > 0.5
        if isinstance(rule, TopK):
            hits = hits_from_ranked(np.argsort(-scores, axis=1), k_prime=rule.k_prime, num_labels=6)
        labels = np.argsort(-hits.sum(axis=0))[:2]
        exact = certified_radii(hits, labels, rule, noise=noise, method="enumerated").row
        law = exact_radii(hits, np.full(columns, 1 / columns), labels, rule, noise=Uniform(0.5), method=method).row
        sides = noise.variation(np.arange(columns))
        weaker = np.where(np.isfinite(law), np.searchsorted(sides, law, side="right") - 1, law)
        assert np.all(exact >= weaker)
        more += int(np.sum(exact > weaker))
    assert more > 0


def test_ties_are_broken() -> None:
    """One vote more than the attacker needs is claimed, a tie is not: ten bands, a patch that meets three."""
    noise = BandAblation(2, 10)
    clear, tied = ([[0]] * (10 - n) + [[1]] * n for n in (1, 2))
    assert certified_radii(clear, [0], TopK(1, 1), noise=noise, num_labels=2, method="enumerated").true.tolist() == [2]
    assert certified_radii(tied, [0], TopK(1, 1), noise=noise, num_labels=2, method="enumerated").true.tolist() == [1]
    half = [[0], [1]] * 5
    assert certified_radii(half, [0], TopK(1, 1), noise=noise, num_labels=2, method="enumerated").true[0] == -np.inf


def test_decimal_threshold() -> None:
    """t is the number as written: 3 of 10 bands are 0.3, and 1 of 10 is 0.1, though no double is."""
    hits = np.arange(10)[:, None] < [3, 1, 0]
    found = certified_radii(hits, [0], Threshold(0.3), noise=BandAblation(1, 10), method="enumerated")
    assert found.true.tolist() == [0.0]
    assert Threshold(0.3).returned(hits, 3) == (0,)
    assert Threshold(0.1).returned(hits, 3) == (0, 1)
    assert certified_radii(hits, [0, 1], Threshold(0.1), noise=BandAblation(1, 10), method="enumerated").true[1] == 0.0


def test_number_of_bands() -> None:
    """Votes that are not one per band are refused."""
    with pytest.raises(InvalidInputError, match="the votes have 7 draws; the noise band:2/8 has its 8 bands"):
        certified_radii([[0]] * 7, [0], TopK(1, 1), noise=BandAblation(2, 8), num_labels=2, method="enumerated")
