"""The order of draws: sorted votes are left to joint, mixed by coupled, refused by betting; independent ones pass."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from benchmarks.order import ALPHA, false_claims
from scipy.stats import binomtest

from multiguard.certify import Threshold, TopK, certified_radii, certified_radii_batch, label_radii
from multiguard.certify.draws import _run_chances, out_of_order
from multiguard.errors import InvalidInputError

ONE = TopK(1, 1)
SORTED = [[0]] * 841 + [[1]] * 159


def test_counts_of_the_paper() -> None:
    """Votes rebuilt from counts: the label stays up to 1.0 sigma, and no more is claimed by any function."""
    options = {"num_labels": 3, "sigma": 1.0}
    assert certified_radii(SORTED, [0], ONE, **options).true[0] <= 1.0
    assert certified_radii_batch([SORTED], [[0]], ONE, **options)[0].true[0] <= 1.0
    assert label_radii(SORTED, [0], ONE, method="coupled", **options)[0] <= 1.0


@pytest.mark.parametrize(("r", "draws"), [(1.0, 89), (0.5, 121)])
def test_default_method_of_sorted_votes(r: float, draws: int) -> None:
    """Mixed by `coupled` alone, sorted votes can be claimed falsely more often than alpha; by default they are not."""
    assert false_claims(r, draws, permuted=True) > 6 * ALPHA
    assert false_claims(r, draws, permuted=True, method=None) <= ALPHA


def test_default_of_independent_draws() -> None:
    """Sorted votes have the radii of `joint`, independent draws nearly always the radii of `coupled`."""
    votes = list(np.random.default_rng(5).choice(2, (100, 200, 1), p=[0.9, 0.1]))
    options = {"num_labels": 2, "sigma": 1.0}
    batch = certified_radii_batch([SORTED, *votes], [[0]] * 101, ONE, **options)
    level = {"alpha": 0.001 / 1.001}
    coupled, joint = (
        certified_radii_batch([SORTED, *votes], [[0]] * 101, ONE, method=m, **level, **options)
        for m in ("coupled", "joint")
    )
    assert batch[0].true == joint[0].true == certified_radii(SORTED, [0], ONE, **options).true
    assert coupled[0].true != joint[0].true
    same = sum(found.true == other.true for found, other in zip(batch[1:], coupled[1:], strict=True))
    assert same >= 96


@pytest.mark.parametrize(("r", "draws"), [(0.02, 300), (1.0, 300), (1.5, 300)])
def test_false_claims_of_sorted_votes(r: float, draws: int) -> None:
    """Exact: sorted votes are claimed falsely nearly always as they stand, and less often than alpha if mixed."""
    assert false_claims(r, draws, permuted=False) > 0.9
    assert false_claims(r, draws, permuted=True) <= ALPHA


@pytest.mark.parametrize(
    ("votes", "rule"),
    [
        *((votes, ONE) for votes in (SORTED, SORTED[::-1], [[0], [1]] * 100, [[0]] * 90 + [[1]] * 10)),
        (np.repeat([[True, False], [False, True], [True, True]], [60, 60, 60], axis=0), Threshold(0.5)),
    ],
)
def test_refused_order(votes, rule) -> None:
    """Betting refuses rows that are sorted or in rotation, and names the method that needs no order."""
    for function in (certified_radii, label_radii):
        with pytest.raises(InvalidInputError, match=r"order in which they were drawn.*use 'joint'"):
            function(votes, [0], rule, num_labels=2, sigma=1.0, method="betting")


@pytest.mark.parametrize(("hits", "misses"), [(1, 1), (3, 4), (2, 7), (6, 6), (1, 9)])
def test_runs(hits: int, misses: int) -> None:
    """The distribution of the number of runs is that of all orders, counted one by one."""
    places = range(hits + misses)
    found: Counter[int] = Counter()
    for chosen in combinations(places, hits):
        marks = [place in chosen for place in places]
        found[1 + sum(one != other for one, other in pairwise(marks))] += 1
    chances = _run_chances(hits, misses)
    total = sum(found.values())
    expected = [found[runs] / total for runs in range(len(chances))]
    np.testing.assert_allclose(chances, expected, atol=1e-12)


def test_independent_draws() -> None:
    """At a level that can be seen, independent draws are refused no more often than the level says."""
    rng, refused, trials = np.random.default_rng(4), 0, 600
    for _ in range(trials):
        votes = np.argsort(rng.gumbel(size=(120, 6)) + np.array([1.5, 1, 0.5, 0, 0, -1]), axis=1)[:, ::-1]
        refused += out_of_order(votes, TopK(3, 2), 6, 0.05) is not None
    assert refused > 0
    assert binomtest(refused, trials, 0.05, alternative="greater").pvalue > 1e-3
