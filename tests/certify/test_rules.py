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


def test_top_k_hits():
    """Only the first k' labels of each draw count."""
    assert TopK(1, 1).hits(RANKED, 256)[[2, 5, 9, 207]].tolist() == [1, 2, 1, 1]
    assert TopK(1, 2).hits(RANKED, 256).sum() == 10


def test_threshold_returned():
    """Every label in at least a fraction t of the draws, most hits first, perhaps none."""
    assert Threshold(0.75).returned(SETS, 3) == (0, 2)
    assert Threshold(0.5).returned(SETS, 3) == (0, 2, 1)
    assert Threshold(0.76).returned(SETS, 3) == ()
    assert Threshold(0.5).hits(SETS, 3).tolist() == [3, 2, 3]


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "3"])
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


def test_plain_numbers():
    """A rule holds plain numbers, however they were given."""
    assert TopK(np.int64(3), np.int8(2)) == TopK(3, 2)
    assert [type(value) for value in (*TopK(np.int64(3), np.int8(2)).options.values(),)] == [int, int]
    assert type(Threshold(np.float32(0.5)).t) is float


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
        (TopK(1, 1), SETS, "top-k rule are integers"),
        (TopK(1, 1), RANKED[0], "top-k rule are integers"),
        (Threshold(0.5), RANKED, "ranked votes do not say which labels passed"),
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
