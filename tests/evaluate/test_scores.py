"""Certified precision, recall and F1 of both rules: by hand, against loops, and some images at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiguard.certify import Radii, Threshold, TopK, certified_size
from multiguard.errors import InvalidInputError
from multiguard.evaluate import set_scores
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.evaluate.scores import certified_sizes
from multiguard.io.records import Rows


def top_k_radii(*true: float) -> Radii:
    return Radii(np.array(true), None)


TOP_K = TopK(3, 2)
TOP_RADII = [top_k_radii(0.5, 0.2), top_k_radii(0.3), top_k_radii(np.inf, 0.1, -np.inf), top_k_radii()]
TOP_TRUE = [2, 1, 5, 0]


def test_one_image() -> None:
    """The scores of one image, by hand."""
    scores = set_scores([TOP_RADII[2]], TOP_K, num_true=[5], radius=[0.0, 0.1, 0.2])
    np.testing.assert_allclose(scores.precision, [2 / 3, 2 / 3, 1 / 3])
    np.testing.assert_allclose(scores.recall, [2 / 5, 2 / 5, 1 / 5])
    np.testing.assert_allclose(scores.f1, [4 / 8, 4 / 8, 2 / 8])
    assert (scores.images, scores.without_labels) == (1, 0)


def test_false_labels_of_images_without_labels() -> None:
    """An image without labels returns only wrong ones: they lower pooled precision and F1, and raise the ceiling."""
    radii, num_true = [top_k_radii(1.0), top_k_radii()], [1, 0]
    mean, pooled = (set_scores(radii, TopK(2, 2), num_true=num_true, radius=0.5, averaging=a) for a in AVERAGINGS)
    assert (mean.precision, mean.recall, mean.f1) == (1 / 2, 1, 2 / 3)
    assert (pooled.precision, pooled.recall, pooled.f1) == (1 / 4, 1, 2 / 5)
    for scores in (mean, pooled):
        assert (scores.true_floor, scores.false_ceiling) == (1, 3 / 2)
        assert (scores.images, scores.without_labels) == (1, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_true": [2, 1, 5]}, "one entry per image"),
        ({"num_true": [2, 1, 2, 0]}, "one entry per image"),
        ({"rule": TopK(2, 2)}, "one entry per image"),
        ({"rule": Threshold(0.5)}, "one entry per image"),
        ({"averaging": "micro"}, "choose"),
        ({"radii": [top_k_radii()], "num_true": [0]}, "nothing to average"),
    ],
)
def test_refused_scores(change, says: str) -> None:
    """Radii of another rule or image are refused."""
    with pytest.raises(InvalidInputError, match=says):
        set_scores(**{"radii": TOP_RADII, "rule": TOP_K, "num_true": TOP_TRUE, "radius": 0.1, **change})


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


def _average(images, radius: float, averaging: str) -> np.ndarray:
    pairs = [(*floor_and_ceiling(each, radius), len(each.true)) for each in images]
    if averaging == "pooled":
        return np.array(slow_scores(*np.sum(pairs, axis=0)))
    return np.mean([slow_scores(*each) for each in pairs if each[2]], axis=0)


GENERATOR = np.random.default_rng(0)
PART_COUNTS = GENERATOR.integers(0, 4, 50)
PART_TRUE = [np.sort(np.where(GENERATOR.random(d) < 0.2, -np.inf, GENERATOR.random(d)))[::-1] for d in PART_COUNTS]
PART_FALSE = [np.sort(GENERATOR.random(6 - d)) for d in PART_COUNTS]
PART_GRID = np.linspace(0, 1, 11)


def test_sizes():
    """The sizes of all images at once are those of each, also at its radii themselves."""
    grid = np.concatenate([PART_GRID, *PART_TRUE[:5]])
    grid = grid[grid >= 0]
    expected = np.stack([certified_size(each, grid) for each in PART_TRUE], axis=-1)
    assert np.array_equal(certified_sizes(Rows.of(PART_TRUE, float), grid), expected)
    assert np.array_equal(certified_sizes(Rows.of(PART_TRUE, float), grid, slice(7, 20)), expected[:, 7:20])


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
@pytest.mark.parametrize("rule", [TopK(3, 1), Threshold(0.5)])
def test_parts(monkeypatch, rule, averaging):
    """Scores do not depend on how many images are held at a time."""
    false = [None] * len(PART_COUNTS) if isinstance(rule, TopK) else PART_FALSE
    radii = [Radii(*each) for each in zip(PART_TRUE, false, strict=True)]
    whole = set_scores(radii, rule, num_true=PART_COUNTS.tolist(), radius=PART_GRID, averaging=averaging)
    monkeypatch.setattr("multiguard.evaluate.scores.IMAGES_AT_A_TIME", 7)
    parts = set_scores(radii, rule, num_true=PART_COUNTS.tolist(), radius=PART_GRID, averaging=averaging)
    for name in ("precision", "recall", "f1", "true_floor", "false_ceiling"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)
    assert (parts.images, parts.without_labels) == (whole.images, whole.without_labels)
