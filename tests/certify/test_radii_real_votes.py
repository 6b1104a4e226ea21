"""Real votes of a classifier trained on COCO images: figures that an independent prototype found too."""

from itertools import pairwise

import numpy as np
import pytest
from tests.shared_data import COCO_VOTES

from multiguard.certify import TopK, certified_radii_batch, settled_by_betting
from multiguard.evaluate import set_scores

pytestmark = pytest.mark.skipif(not COCO_VOTES.exists(), reason="needs the COCO votes of the shared data")

GRID = 0.5 * np.arange(0, 3, 0.5)

# Certified recall in % at R / sigma = 0, 0.5, ..., 2.5, images with 1 to 6 labels.
PROTOTYPE = {
    (3, 10, "paper"): [58.1, 51.9, 44.8, 39.1, 33.1, 28.4],
    (3, 10, "joint"): [58.3, 51.9, 44.8, 39.8, 34.3, 29.7],
    (3, 5, "paper"): [52.8, 46.4, 40.8, 33.4, 26.1, 0.4],
    (3, 5, "joint"): [53.0, 46.4, 41.0, 34.9, 29.2, 2.7],
    (1, 10, "paper"): [34.7, 30.5, 26.6, 24.5, 22.3, 19.3],
    (1, 10, "joint"): [36.6, 33.4, 28.7, 25.6, 23.2, 20.7],
    (1, 3, "paper"): [31.9, 28.0, 24.6, 22.1, 19.1, 16.6],
    (1, 3, "joint"): [32.3, 28.4, 25.0, 22.5, 20.4, 18.1],
}
# What the layers of rivals add to joint; the prototype had only the votes of its labels.
LAYERS = {(3, 10): [0.0, 0.0, 0.5, 0.8, 0.3, 0.2], (3, 5): [0.0, 0.0, 0.6, 0.2, 0.0, 0.0]}
ALL_IMAGES = {
    "paper": [57.0, 50.7, 43.6, 38.1, 32.2, 27.5],
    "jia": [56.9, 50.6, 43.5, 37.9, 31.9, 27.7],
    "independent": [57.0, 50.7, 43.6, 36.8, 27.8, 0.0],
}


@pytest.fixture(scope="module")
def data():
    with np.load(COCO_VOTES) as stored:
        return stored["votes"], [np.flatnonzero(row) for row in stored["labels"]]


def recall(votes, labels, *, k_prime: int, k: int, method: str) -> np.ndarray:
    radii = certified_radii_batch(votes, labels, TopK(k, k_prime), num_labels=80, sigma=0.5, method=method)
    return 100 * set_scores(radii, TopK(k, k_prime), num_true=[len(true) for true in labels], radius=GRID).recall


@pytest.mark.parametrize(("k_prime", "k", "method"), PROTOTYPE)
def test_up_to_six_labels(data, k_prime: int, k: int, method: str) -> None:
    """Certified recall is that of an independent prototype, and what the layers of rivals add."""
    votes, labels = data
    chosen = [i for i, true in enumerate(labels) if 1 <= len(true) <= 6]
    assert len(chosen) == 474
    found = recall(votes[chosen], [labels[i] for i in chosen], k_prime=k_prime, k=k, method=method)
    expected = np.array(PROTOTYPE[k_prime, k, method])
    if method == "joint":
        expected += LAYERS.get((k_prime, k), 0.0)
    assert np.all(found > expected - 0.06)
    assert np.all(found < expected + 0.2)


@pytest.mark.parametrize("method", ALL_IMAGES)
def test_all_images(data, method: str) -> None:
    """The same over all images."""
    votes, labels = data
    np.testing.assert_allclose(recall(votes, labels, k_prime=3, k=10, method=method), ALL_IMAGES[method], atol=0.06)


def test_adaptive_draws(data) -> None:
    """At radius 0.5 of 1000 draws: less than a quarter of them certify more than all do by joint; every fifth image."""
    votes, labels = data[0][::5], data[1][::5]
    rule, options, stops = TopK(10, 3), {"num_labels": 80, "sigma": 0.5}, (50, 100, 200, 500, 1000)
    taken = np.full(len(votes), stops[0])
    for now, following in pairwise(stops):
        live = np.flatnonzero(taken == now)
        so_far = [votes[i, :now] for i in live], [labels[i] for i in live]
        more = {"radii": [0.5], "draws": 1000, "forecast_margin": 1.0}
        taken[live[~np.array(settled_by_betting(*so_far, rule, **more, **options))]] = following
    drawn = [ranked[:n] for ranked, n in zip(votes, taken, strict=True)]
    num_true = [len(true) for true in labels]
    adaptive, fixed = (
        float(100 * set_scores(radii, rule, num_true=num_true, radius=np.array([0.5])).recall[0])
        for radii in (
            certified_radii_batch(drawn, labels, rule, method="betting", **options),
            certified_radii_batch(votes, labels, rule, method="joint", **options),
        )
    )
    assert taken.mean() < 250
    assert adaptive > fixed
