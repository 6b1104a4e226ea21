"""Scores of the threshold rule: floors and ceilings at a radius, and what they imply."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiguard import Radii, Threshold, TopK
from multiguard.evaluate import set_scores

INF = np.inf
RADII = [
    Radii(np.array([0.5, 0.2]), np.array([0.1, 0.3, 0.6])),
    Radii(np.array([0.3]), np.array([-INF, -INF, 0.2, 0.2])),
    Radii(np.array([0.4, -INF, -INF, -INF, -INF]), np.empty(0)),
    Radii(np.empty(0), np.array([0.1, 0.1, 0.1, 0.1, 0.2])),
    Radii(np.array([-INF, -INF]), np.array([0.9, 0.9, 0.9])),
]
TRUE = [len(each.true) for each in RADII]
RULE = Threshold(0.5)
GRID = np.linspace(0, 0.7, 15)


def floor_and_ceiling(radii: Radii, radius: float) -> tuple[int, int]:
    """The largest e proved at the radius, and the smallest m, each looked for one by one."""
    e, m = len(radii.true), 0
    while e > 0 and not radii.true[e - 1] >= radius:
        e -= 1
    while m < len(radii.false) and not radii.false[m] >= radius:
        m += 1
    return e, m


def slow_scores(true_positives: int, false_positives: int, d: int) -> tuple[float, float, float]:
    """Precision, recall and F1 from their definitions; precision of nothing returned is 0."""
    returned = true_positives + false_positives
    precision = true_positives / returned if returned else 0.0
    recall = true_positives / d if d else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1


def test_empty_prediction() -> None:
    """Where nothing is certified in and nothing can come in, all scores are 0."""
    scores = set_scores([RADII[4]], RULE, num_true=[2], radius=0.5)
    assert (scores.true_floor, scores.false_ceiling) == (0, 0)
    assert (scores.precision, scores.recall, scores.f1) == (0, 0, 0)


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
def test_image_set(averaging: str) -> None:
    """The scores of a set are those of loops."""
    scores = set_scores(RADII, RULE, num_true=TRUE, radius=GRID, averaging=averaging)
    for position, radius in enumerate(GRID):
        every = [(*floor_and_ceiling(each, radius), len(each.true)) for each in RADII]
        pairs = [each for each, d in zip(every, TRUE, strict=True) if d]
        expected = _average(RADII, radius, averaging)
        found = scores.precision[position], scores.recall[position], scores.f1[position]
        np.testing.assert_allclose(found, expected, atol=1e-15)
        np.testing.assert_allclose(scores.true_floor[position], np.mean([e for e, _, _ in pairs]))
        np.testing.assert_allclose(scores.false_ceiling[position], np.mean([m for _, m, _ in every]))
    assert (scores.images, scores.without_labels) == (4, 1)


image = st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


@given(st.lists(image, min_size=1, max_size=4))
def test_lower_bounds(images) -> None:
    """Each image is (d, e, m, more true, fewer false): any outcome that e and m allow."""
    radii, outcomes = [], []
    for d, e, m, more, fewer in images:
        e = min(d, e)
        radii.append(Radii(np.where(np.arange(d) < e, 1.0, -INF), np.where(np.arange(4) < m, -INF, 1.0)))
        outcomes.append((min(d, e + more), max(0, m - fewer), d))
    num_true = [d for _, _, d in outcomes]
    mean, pooled = (set_scores(radii, RULE, num_true=num_true, radius=1.0, averaging=how) for how in ("mean", "pooled"))
    true_mean = np.mean([slow_scores(*each) for each in outcomes], axis=0)
    true_pooled = slow_scores(*np.sum(outcomes, axis=0))
    assert np.all(np.array([mean.precision, mean.recall, mean.f1]) <= true_mean + 1e-12)
    assert np.all(np.array([pooled.precision, pooled.recall, pooled.f1]) <= np.array(true_pooled) + 1e-12)


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
def test_top_k_case(averaging) -> None:
    """Top-k is the case in which floor and ceiling sum to k."""
    true = [np.array([0.5, 0.2, -INF]), np.array([0.3]), np.empty(0)]
    number = [4, 1, 0]
    ours = [Radii(each, None) for each in true]
    found = set_scores(ours, TopK(3, 2), num_true=number, radius=GRID, averaging=averaging)
    floors = [[np.sum(each >= radius) for each in true] for radius in GRID]
    rows = [(int(e), int(3 - e), d) for e, d in zip(floors[4], number, strict=True)]
    pooled = slow_scores(*np.sum(rows, axis=0))
    mean = np.mean([slow_scores(*each) for each in rows[:2]], axis=0)
    scores = found.precision[4], found.recall[4], found.f1[4]
    np.testing.assert_allclose(scores, pooled if averaging == "pooled" else mean)
    assert found.true_floor.tolist() == [np.mean(each[:2]) for each in floors]
    assert found.false_ceiling.tolist() == pytest.approx([3 - np.mean(each) for each in floors])


def _average(images, radius: float, averaging: str) -> np.ndarray:
    pairs = [(*floor_and_ceiling(each, radius), len(each.true)) for each in images]
    if averaging == "pooled":
        return np.array(slow_scores(*np.sum(pairs, axis=0)))
    return np.mean([slow_scores(*each) for each in pairs if each[2]], axis=0)
