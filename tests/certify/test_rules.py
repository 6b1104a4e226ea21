"""The rules: what they return, what they refuse, and the one place that makes them from options."""

import numpy as np
import pytest

from multiguard.certify import Gaussian, Threshold, TopK, certified_radii, certified_radii_batch, make_rule
from multiguard.certify.rules import default_method
from multiguard.errors import InvalidInputError

RANKED = np.array([[207, 2], [2, 207], [5, 9], [9, 5], [5, 9]], np.uint8)
SETS = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 1], [0, 1, 1]], bool)


def test_top_k_returned():
    """The k labels with the most hits, most first; ties go to the smaller index, and labels without a hit are out."""
    assert TopK(4, 2).returned(RANKED, 256) == (5, 9, 2, 207)
    assert TopK(6, 2).returned(RANKED, 256) == (5, 9, 2, 207)
    assert TopK(2, 1).returned(RANKED, 256) == (5, 2)


def test_threshold_returned():
    """Every label in at least a fraction t of the draws, most hits first, perhaps none."""
    assert Threshold(0.75).returned(SETS, 3) == (0, 2)
    assert Threshold(0.5).returned(SETS, 3) == (0, 2, 1)
    assert Threshold(0.76).returned(SETS, 3) == ()
    assert Threshold(0.5).hits(SETS, 3).tolist() == [3, 2, 3]


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3"])
def test_refused_counts(value):
    """k and k' are whole numbers of at least 1."""
    with pytest.raises(InvalidInputError, match="k must be a whole number of at least 1"):
        TopK(value, 1)
    with pytest.raises(InvalidInputError, match="k_prime must be a whole number of at least 1"):
        TopK(1, value)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1, float("nan"), "0.5", None, True])
def test_refused_threshold(value):
    """t lies strictly between 0 and 1."""
    with pytest.raises(InvalidInputError, match="threshold must lie strictly between 0 and 1"):
        Threshold(value)


def test_number_of_labels():
    """A rule fits a number of labels of at least k and k'."""
    TopK(4, 4).check(4)
    Threshold(0.5).check(1)
    for rule, labels, message in [
        (TopK(5, 1), 4, "k must be .* at most the number of labels, 4"),
        (TopK(1, 5), 4, "k_prime must be"),
        (Threshold(0.5), 0, "num_labels"),
        (TopK(1, 1), 2.0, "num_labels"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            rule.check(labels)


@pytest.mark.parametrize(
    ("rule", "votes", "message"),
    [
        (TopK(1, 3), RANKED, "k_prime = 3, but these votes keep 2 labels per draw"),
        (TopK(1, 1), SETS, "exactly k_prime = 1 different labels"),
        (TopK(1, 1), RANKED[0], "ranked votes must be integers"),
        (Threshold(0.5), RANKED, "of ranked votes give k_prime, too"),
        (Threshold(0.5), SETS[:, :2], "one column per label"),
        (Threshold(0.5), SETS[:0], "at least one draw"),
    ],
)
def test_other_votes(rule, votes, message):
    """Votes that the rule cannot read are refused."""
    for function in (rule.hits, rule.returned):
        with pytest.raises(InvalidInputError, match=message):
            function(votes, 3)


@pytest.mark.parametrize("rule", [TopK(5, 3), Threshold(0.25)])
def test_options(rule):
    """Every rule is made again from its name and options."""
    assert make_rule(rule.name, **rule.options) == rule


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("top-k", {"k": 3}, "k_prime is missing; the top-k rule needs k and k_prime"),
        ("top-k", {}, "k is missing"),
        ("threshold", {}, "threshold is missing; the threshold rule needs threshold"),
        ("top-k", {"k": 3, "k_prime": 2, "threshold": 0.5}, "threshold belongs to the threshold rule; the top-k rule"),
        ("threshold", {"threshold": 0.5, "k": 1}, "k belongs to the top-k rule; the threshold rule takes threshold"),
        ("treshold", {"threshold": 0.5}, "unknown rule 'treshold': did you mean 'threshold'"),
        ("top-k", {"k": 3, "k_prime": 0}, "k_prime must be"),
        ("threshold", {"threshold": 2.0}, "threshold must lie strictly between 0 and 1"),
    ],
)
def test_refused_options(name, options, message):
    """A rule takes exactly its own options."""
    with pytest.raises(InvalidInputError, match=message):
        make_rule(name, **options)


@pytest.mark.parametrize(
    ("k_prime", "draws", "method"),
    [
        (1, 79, "joint"),
        (1, 80, "coupled"),
        (1, 50_000, "coupled"),
        (1, 50_001, "joint"),
        (3, 60_000, "coupled"),
        (3, 100_001, "joint"),
    ],
)
def test_default_method(k_prime: int, draws: int, method: str) -> None:
    """The default follows the number of draws, and a few draws prove what `joint` proves of them."""
    assert default_method(TopK(3, k_prime), Gaussian(0.5), draws) == method
    if draws < 100:
        votes = np.zeros((draws, 1), np.int64)
        one = {"labels": [0], "rule": TopK(1, 1), "num_labels": 5, "sigma": 1.0}
        assert certified_radii(votes, **one).true == certified_radii(votes, **one, method=method).true
        batch = certified_radii_batch([votes, votes[:30]], [[0], [0]], TopK(1, 1), num_labels=5, sigma=1.0)
        assert [each.true[0] for each in batch] == [
            certified_radii(votes, **one).true[0],
            certified_radii(votes[:30], **one, method="joint").true[0],
        ]


def test_kept_ranks() -> None:
    """The top-k rule needs k' ranks, where votes say how many they keep."""
    TopK(5, 3).check_ranks(3)
    TopK(5, 3).check_ranks(None)
    Threshold(0.5).check_ranks(1)
    with pytest.raises(InvalidInputError, match="keep 2 labels per draw"):
        TopK(5, 3).check_ranks(2)


def test_returned_once() -> None:
    """Without noise: the first k ranks if votes keep as many, or the set."""
    assert TopK(2, 1).returned_once(RANKED) == (207, 2)
    assert TopK(3, 1).returned_once(RANKED) is None
    assert Threshold(0.5).returned_once(SETS) == (0, 2)


def test_returned_by_scores() -> None:
    """The k largest, ties by index; or all that reach t, or the score that means t."""
    scores = np.array([[0.1, 0.7, 0.7], [0.5, 0.5, 0.5]])
    assert TopK(1, 1).returned_by(scores).tolist() == [[False, True, False], [True, False, False]]
    assert Threshold(0.6).returned_by(scores).tolist() == [[False, True, True], [False] * 3]
    assert Threshold(0.6).returned_by(scores, 0.5).tolist() == [[False, True, True], [True] * 3]


def test_most_staying() -> None:
    """The most labels that can stay, or stay out, over all probabilities between the bounds, one by one."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, inside = rng.integers(0, 4, 4) / 4, rng.random(4) < 0.5
        high = low + rng.integers(0, 2, 4) / 4
        ends = np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(4, -1).T
        for k in (1, 2, 3):
            own = [sorted(range(4), key=lambda i, p=p: (-p[i], not inside[i]))[:k] for p in ends]
            assert TopK(k, 1).most_staying(low, high, inside) == max(inside[found].sum() for found in own)
        rule = Threshold(0.5)
        assert rule.most_staying(low, high, inside) == max((p >= 0.5)[inside].sum() for p in ends)
        assert rule.most_out(low, inside) == max((p < 0.5)[~inside].sum() for p in ends)
