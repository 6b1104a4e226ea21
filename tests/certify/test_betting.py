"""The method betting: what it claims, what it refuses, exact probabilities, and outlooks."""

import numpy as np
import pytest
from scipy.special import ndtri
from tests.certify.cases import random_ranked

from multiguard.certify import (
    Rule,
    Threshold,
    TopK,
    certified_radii,
    certified_radii_batch,
    exact_radii,
    label_radii,
)
from multiguard.errors import InvalidInputError

BETTING = {"sigma": 1.0, "alpha": 0.01, "method": "betting"}


def test_few_draws() -> None:
    """Draws before the first cut prove nothing; a few more do."""
    assert certified_radii([[0]] * 30, [0], TopK(1, 1), num_labels=2, **BETTING).true[0] == -np.inf
    assert certified_radii([[0]] * 90, [0], TopK(1, 1), num_labels=2, **BETTING).true[0] > 0.2


def test_batch_of_any_draws() -> None:
    """Images with different numbers of draws each have the radii that they have alone."""
    rng = np.random.default_rng(0)
    votes = [random_ranked(rng, labels=8, depth=2, draws=n, spread=2.0) for n in (20, 120, 333, 700)]
    labels = [
        np.argsort(-np.bincount(each.ravel(), minlength=8))[:d] for each, d in zip(votes, (1, 2, 3, 2), strict=True)
    ]
    together = certified_radii_batch(votes, labels, TopK(3, 2), num_labels=8, **BETTING)
    for each, own, radii in zip(votes, labels, together, strict=True):
        alone = certified_radii(each, own, TopK(3, 2), num_labels=8, **BETTING)
        assert np.array_equal(alone.true, radii.true)
    assert np.isfinite(together[3].true).any()


def test_certain_sizes() -> None:
    """Sizes that cannot fail have infinite radii and take nothing of alpha."""
    votes = random_ranked(np.random.default_rng(1), labels=5, depth=2, draws=300, spread=3.0)
    likely = np.argsort(-np.bincount(votes.ravel(), minlength=5))
    radii = certified_radii(votes, likely[:3], TopK(3, 2), num_labels=5, **BETTING).true
    assert radii[0] == np.inf
    assert np.all(np.isfinite(radii[1:]) | np.isneginf(radii[1:]))
    assert np.all(certified_radii(votes, likely[:3], TopK(5, 2), num_labels=5, **BETTING).true == np.inf)


@pytest.mark.parametrize("rule", [TopK(20, 14), Threshold(0.5)], ids=["top-k", "threshold"])
def test_many_labels(rule: Rule) -> None:
    """More labels in L than subsets can be taken of; some claims are made, none that the votes contradict."""
    rng = np.random.default_rng(2)
    votes = rng.random((400, 40)) < np.repeat([0.97, 0.05], [14, 26])
    if isinstance(rule, TopK):
        votes = np.argsort(-(votes + 0.1 * rng.random(votes.shape)), axis=1)[:, :14]
    radii = certified_radii(votes, range(14), rule, num_labels=40, **BETTING)
    assert np.sum(radii.true > 0.3) >= 10
    assert radii.false is None or np.sum(radii.false > 0.3) >= 10


def test_refused_votes() -> None:
    """A label twice in a draw or in L is refused."""
    with pytest.raises(InvalidInputError, match="twice"):
        certified_radii([[0, 0]] * 50, [0], TopK(2, 2), num_labels=3, **BETTING)
    with pytest.raises(InvalidInputError, match="different"):
        certified_radii([[0, 1]] * 50, [0, 0], TopK(2, 2), num_labels=3, **BETTING)


def test_labels_alone() -> None:
    """The radius of a label alone is that of L = {label}, in the order given."""
    votes = random_ranked(np.random.default_rng(4), labels=6, depth=2, draws=300, spread=2.0)
    likely = np.argsort(-np.bincount(votes.ravel(), minlength=6))[:2]
    alone = label_radii(votes, likely, TopK(3, 2), num_labels=6, **BETTING)
    for label, radius in zip(likely, alone, strict=True):
        assert radius == certified_radii(votes, [label], TopK(3, 2), num_labels=6, **BETTING).true[0]
    assert np.any(alone > 0)


@pytest.mark.parametrize("method", ["joint", "paper", "independent", "jia"])
def test_exact_tails(method: str) -> None:
    """A label that is returned nearly always is not taken for one that always is."""
    for chances, most in (([1.0, 5e-10], 6.2), ([1.0, 1e-18], 9.0), ([1.0, 1e-14], 9.0)):
        sets = np.eye(2, dtype=np.bool_)
        radius = exact_radii(sets, chances, [0], TopK(1, 1), sigma=1.0, method=method).true[0]
        assert radius <= min(most, -ndtri(chances[1] / sum(chances)))
        assert radius > 5
    assert exact_radii(sets, [1.0, 0.0], [0], TopK(1, 1), sigma=1.0, method=method).true[0] == np.inf
