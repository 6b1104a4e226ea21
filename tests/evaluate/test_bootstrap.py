"""Bands are the percentile bootstrap over images."""

import numpy as np
import pytest
from scipy import stats
from tests.evaluate.votes_cases import as_lists, random_votes

from multiguard.certify import TopK, certified_size
from multiguard.certify.noise import Gaussian
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, bootstrap, certify_votes, curves, paired_differences, radius_grid

GRID = radius_grid(Gaussian(0.5), step=0.25)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    return certify_votes(
        random_votes(tmp_path_factory.mktemp("votes"), images=40), CertifyConfig(TopK(3, 2)), methods=["joint"]
    )


def slow_band(certified, averaging, part, *, level, resamples, seed):
    """Each resample drawn and averaged on its own."""
    kept = [i for i, true in enumerate(certified.labels) if true or averaging == "pooled"]
    sizes = np.array([certified_size(certified.radii["joint"][i], GRID) for i in kept])
    parts = np.array([part(len(certified.labels[i])) for i in kept])
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        drawn = rng.integers(len(kept), size=len(kept))
        if averaging == "pooled":
            found.append(sizes[drawn].sum(axis=0) / parts[drawn].sum())
        else:
            found.append(np.mean(sizes[drawn] / parts[drawn, None], axis=0))
    return np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)


@pytest.mark.parametrize("numbers", [1 << 22, 100])
def test_literal_bands(certified, monkeypatch, numbers) -> None:
    """Bands are those of a slow loop."""
    monkeypatch.setattr(bootstrap, "_NUMBERS_AT_A_TIME", numbers)
    parts = {"precision": lambda d: 3, "recall": lambda d: d, "f1": lambda d: (d + 3) / 2}
    for curve in curves(certified, GRID, bands=0.9, resamples=57, seed=5):
        assert (curve.bands.level, curve.bands.resamples, curve.bands.seed) == (0.9, 57, 5)
        for name, part in parts.items():
            expected = slow_band(certified, curve.averaging, part, level=0.9, resamples=57, seed=5)
            np.testing.assert_allclose(getattr(curve.bands, name), expected, rtol=1e-12)


def test_scipy_bands(certified) -> None:
    """Bands are those of SciPy."""
    curve = curves(certified, GRID, bands=0.95, resamples=4000, seed=1)[0]
    kept = [i for i, true in enumerate(certified.labels) if true]
    recall = [certified_size(certified.radii["joint"][i], GRID) / len(certified.labels[i]) for i in kept]
    found = stats.bootstrap(
        (np.array(recall),),
        np.mean,
        axis=0,
        n_resamples=4000,
        method="percentile",
        random_state=np.random.default_rng(2),
    ).confidence_interval
    width = np.asarray(found.high) - np.asarray(found.low)
    assert width[0] > 0.1
    np.testing.assert_array_less(np.abs(curve.bands.recall[0] - found.low), 0.1 * width + 1e-12)
    np.testing.assert_array_less(np.abs(curve.bands.recall[1] - found.high), 0.1 * width + 1e-12)


def test_seed(certified) -> None:
    """The seed decides the resamples."""
    first, again, other = (curves(certified, GRID, bands=0.95, resamples=50, seed=seed) for seed in (3, 3, 4))
    assert as_lists(first) == as_lists(again)
    assert as_lists(first[0].bands.recall) != as_lists(other[0].bands.recall)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bands": 95}, "level"),
        ({"bands": 0}, "level"),
        ({"bands": 0.9, "resamples": 0}, "resamples"),
        ({"bands": 0.9, "seed": -1}, "seed"),
    ],
)
def test_refused_bands(certified, arguments, message) -> None:
    """Bands out of range are refused."""
    with pytest.raises(InvalidInputError, match=message):
        curves(certified, GRID, **arguments)


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
def test_literal_differences(certified, tmp_path, averaging) -> None:
    """Differences are those of a slow loop that draws the same images for both runs."""
    options = {"averaging": averaging, "level": 0.9, "resamples": 43, "seed": 5}
    other = certify_votes(random_votes(tmp_path, images=40), CertifyConfig(TopK(3, 1)), methods=["joint", "paper"])
    found = paired_differences(certified, other, GRID, methods=("joint", "paper"), **options)
    kept = [i for i, true in enumerate(certified.labels) if true or averaging == "pooled"]
    ours, theirs = (
        np.array([certified_size(run.radii[method][i], GRID) for i in kept], float)
        for run, method in ((certified, "joint"), (other, "paper"))
    )
    true = np.array([len(certified.labels[i]) for i in kept], float)

    def recall(sizes, drawn):
        if averaging == "pooled":
            return sizes[drawn].sum(axis=0) / true[drawn].sum()
        return np.mean(sizes[drawn] / true[drawn, None], axis=0)

    rng, everyone = np.random.default_rng(5), np.arange(len(kept))
    resampled = [rng.integers(len(kept), size=len(kept)) for _ in range(43)]
    differences = [recall(ours, drawn) - recall(theirs, drawn) for drawn in resampled]
    np.testing.assert_allclose(found.recall[0], recall(ours, everyone) - recall(theirs, everyone), atol=1e-12)
    np.testing.assert_allclose(found.recall[1:], np.quantile(differences, [0.05, 0.95], axis=0), atol=1e-12)
    assert np.any(found.recall[2] > found.recall[1])


def test_unpaired_images(certified) -> None:
    """Runs on other images, or with labels on other images, have no paired differences."""
    fewer = certified.only(certified.ids[:-1])
    with pytest.raises(InvalidInputError, match="the same images"):
        paired_differences(certified, fewer, GRID, methods=("joint", "joint"))


def test_only(certified) -> None:
    """The claims on some images are those that they have among all."""
    some = certified.only([certified.ids[5], certified.ids[2]])
    assert (some.ids, some.labels) == ((certified.ids[5], certified.ids[2]), (certified.labels[5], certified.labels[2]))
    assert np.array_equal(some.radii["joint"][1], certified.radii["joint"][2])
    assert (some.draws, some.failures) == ((200, 200), ())
