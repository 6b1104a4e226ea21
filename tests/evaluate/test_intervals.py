"""Confidence intervals of means over images hold for any sample size, and for rare events."""

import numpy as np
import pytest
from scipy import stats
from tests.evaluate.votes_cases import random_votes

from multiguard.certify import Gaussian, certified_size, clopper_pearson_lower
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, curves, make_certificates, paired_differences, radius_grid
from multiguard.evaluate.curves import (
    TEST_SET_ERROR,
    Bands,
    mean_at_least,
    mean_bands,
    most_false,
    surely_staying,
)
from multiguard.evaluate.scores import Counts


def mean_interval(values, level=0.95) -> tuple[float, float]:
    """Both ends, each wrong with half of what the level leaves."""
    error = (1 - level) / 2
    given = np.asarray(values, np.float64)
    return mean_at_least(given, 1 - error), 1 - mean_at_least(1 - given, 1 - error)


GRID = radius_grid(Gaussian(0.5), step=0.25)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    votes = random_votes(tmp_path_factory.mktemp("votes"), images=40)
    return make_certificates(CertifyConfig(3, 2, methods=["joint", "paper"]), votes)


@pytest.mark.parametrize("images", [1, 7, 60])
def test_exact_coverage(images) -> None:
    """For means of zeros and ones the probability that an end is wrong is a sum of binomial terms: at most 2.5 %."""
    ends = [mean_interval(np.arange(images) < ones) for ones in range(images + 1)]
    low, high = np.array(ends).T
    for p in np.linspace(0.001, 0.999, 333):
        chance = stats.binom.pmf(np.arange(images + 1), images, p)
        assert chance[low > p].sum() <= 0.025
        assert chance[high < p].sum() <= 0.025


@pytest.mark.parametrize(("positive", "negative"), [(0.02, 0.0), (0.01, 0.01), (0.005, 0.02)])
def test_rare_differences(positive, negative) -> None:
    """Few discordant images of 100: the interval of the mean difference misses it as rarely as it says."""
    images, truth = 100, positive - negative
    missed = 0.0
    for ups in range(12):
        for downs in range(12):
            values = np.full(images, 0.5)
            values[:ups], values[ups : ups + downs] = 1.0, 0.0
            low, high = (2 * end - 1 for end in mean_interval(values))
            chance = stats.multinomial.pmf(
                [ups, downs, images - ups - downs], images, [positive, negative, 1 - positive - negative]
            )
            missed += 0.0 if low <= truth <= high else chance
    assert missed <= 0.05


def test_percentile_bootstrap_fails() -> None:
    """The control: the percentile bootstrap of rare events covers far less than it says, by the same exact sum."""
    images, p = 100, 0.01
    covered = 0.0
    for ones in range(8):
        low, high = stats.binom.ppf([0.025, 0.975], images, ones / images) / images
        covered += stats.binom.pmf(ones, images, p) * (low <= p <= high)
    assert covered < 0.7


def slow_lower(values, error) -> float:
    """The largest m on a fine grid at which the mixture of bets has reached 1 / error, straight from the formula."""
    stakes = np.geomspace(len(values) ** -0.5, 0.99, 8)
    best = 0.0
    for m in np.arange(1, 4000) / 4000:
        wealth = np.mean([np.prod([1 - theta + theta * x / m for x in values]) for theta in stakes])
        if wealth < 1 / error:
            return best
        best = m
    return best


def test_slow_reference() -> None:
    """Both ends are those of the formula."""
    values = np.random.default_rng(0).choice([0, 1 / 3, 0.5, 1], size=40)
    low, high = mean_interval(values, 0.9)
    assert 0 <= low - slow_lower(values, 0.05) <= 1 / 4000
    assert 0 <= slow_lower(1 - values, 0.05) + high - 1 + 1 / 4000 <= 1 / 4000


def test_bands(certified) -> None:
    """Bands of curves are the intervals of each image's scores; pooled scores have none."""
    curve, pooled = curves(certified, GRID, bands=0.9)[:2]
    assert (curve.averaging, curve.bands.level, pooled.bands) == ("mean", 0.9, None)
    kept = [i for i, true in enumerate(certified.labels) if true]
    floors = np.array([certified_size(certified.radii["joint"][i], GRID) for i in kept], float)
    true = np.array([len(certified.labels[i]) for i in kept], float)[:, None]
    each = {"precision": floors / 3, "recall": floors / true, "f1": 2 * floors / (3 + true)}
    for name, values in each.items():
        expected = np.array([mean_interval(column, 0.9) for column in values.T]).T
        np.testing.assert_allclose(getattr(curve.bands, name), expected, atol=1e-8)


def test_paired_differences(certified) -> None:
    """Differences are those of each image with itself, and so are their intervals."""
    found = paired_differences(certified, certified, GRID, methods=("joint", "paper"), level=0.9)
    kept = [i for i, true in enumerate(certified.labels) if true]
    joint, paper = (
        np.array([certified_size(certified.radii[method][i], GRID) / len(certified.labels[i]) for i in kept])
        for method in ("joint", "paper")
    )
    np.testing.assert_allclose(found["recall"][0], (joint - paper).mean(axis=0), atol=1e-12)
    expected = np.array([mean_interval(column, 0.9) for column in ((joint - paper + 1) / 2).T]).T
    np.testing.assert_allclose(found["recall"][1:], 2 * expected - 1, atol=1e-8)


@pytest.mark.parametrize("level", [95, 0, 1])
def test_refused_level(certified, level) -> None:
    """A confidence out of range is refused."""
    with pytest.raises(InvalidInputError, match="level"):
        curves(certified, GRID, bands=level)


def test_unpaired_images(certified) -> None:
    """Runs on other images, or with labels on other images, have no paired differences."""
    fewer = certified.only(certified.ids[:-1])
    with pytest.raises(InvalidInputError, match="the same images"):
        paired_differences(certified, fewer, GRID, methods=("joint", "joint"))


@pytest.mark.parametrize("values", [[], [1.2, 0.5], [-3, 0.5], [np.nan], [[0.5]]])
def test_refused_values(values) -> None:
    """What the bound does not hold for is refused."""
    with pytest.raises(InvalidInputError, match="values must be"):
        mean_interval(values)


def false_floors(images: int, alpha: float) -> tuple[np.ndarray, list[Bands], list[float]]:
    """A world in which all that is certified is false: the law of the number of false images, and what it claims.

    A label is hit by 80 % of the draws of each image, and certified where more than half of them surely hit it (Cohen
    et al.); at a radius just beyond the true one every score is 0.
    """
    draws, p = 200, 0.8
    radii = stats.norm.ppf(clopper_pearson_lower(np.arange(draws + 1), draws, alpha))
    wrong = stats.binom.pmf(range(draws + 1), draws, p) @ (radii > stats.norm.ppf(p))
    assert 0.5 * alpha < wrong <= alpha
    claimed, counts = [], []
    for false in range(images + 1):
        floors = (np.arange(images) < false).astype(float)[None]
        part = Counts(floors, 1 - floors, np.ones(images))
        claimed.append(mean_bands([part], 0.95, alpha))
        counts.append(float(surely_staying([part], alpha)[0]))
    return stats.binom.pmf(range(images + 1), images, wrong), claimed, counts


@pytest.mark.parametrize(("images", "alpha"), [(5, 0.1), (40, 0.1), (300, 0.02), (300, 0.001)])
def test_false_test_sets(images, alpha) -> None:
    """By exact sums a test set is promised a score that it does not have with probability at most 0.002."""
    law, claimed, counts = false_floors(images, alpha)
    for floors in ([bands.test_set[1][0] for bands in claimed], counts):
        assert law @ (np.array(floors) > 0) <= TEST_SET_ERROR
        assert floors[-1] > 0
    assert law @ (np.arange(images + 1) > most_false(images, alpha) - 1) > TEST_SET_ERROR / 50
    assert law @ (np.arange(images + 1) > 0) > TEST_SET_ERROR  # the control: the mean of all certificates is no promise


@pytest.mark.parametrize("images", [40, 400])
def test_false_populations(images) -> None:
    """By exact sums images like these are promised a score that they do not have with probability at most 5 %."""
    law, claimed, _ = false_floors(images, 0.1)
    assert law @ [bands.population[1][0] > 0 for bands in claimed] <= 0.05
    assert claimed[-1].population[1][0] > 0.75
    low = np.array([bands.recall[0][0] for bands in claimed])
    assert images < 400 or law @ (low > 0) > 0.9  # the control: the interval alone is no promise about true scores


def test_test_set_of_many_scores(certified) -> None:
    """The floor is the sum without the largest scores, as a sort has it, over the images with labels."""
    (curve, _) = curves(certified, GRID, bands=0.9)[:2]
    kept = [i for i, true in enumerate(certified.labels) if true]
    floors = np.array([certified_size(certified.radii["joint"][i], GRID) for i in kept], float)
    each = np.sort(floors / np.array([len(certified.labels[i]) for i in kept])[:, None], axis=0)
    left_out = most_false(len(kept), certified.config.alpha)
    assert left_out == 1
    np.testing.assert_allclose(curve.bands.test_set[1], each[:-left_out].sum(axis=0) / len(kept), atol=1e-12)
    lower = [mean_at_least(column, 0.9) for column in each.T]
    np.testing.assert_allclose(curve.bands.population[1], np.maximum(np.array(lower) - 0.001, 0), atol=1e-8)
