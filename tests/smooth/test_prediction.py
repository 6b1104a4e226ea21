"""Pilot draws choose, other draws confirm: no more labels are falsely confirmed than promised."""

import numpy as np
import pytest
from multiguard.smooth.asked import TopK
from scipy import stats
from torch import Tensor

from multiguard.certify import certified_radii, hits_from_ranked
from multiguard.errors import InvalidInputError
from multiguard.models import load_classifier
from multiguard.smooth import Smoother
from multiguard.smooth.prediction import confirm


def smoother(labels: int, k_max: int = 2) -> Smoother:
    """f ranks the numbers of its noisy input, so g's true order is the order of the clean numbers."""
    f = load_classifier(lambda x: x.clone(), labels=[str(i) for i in range(labels)], output="logits")
    return Smoother(f, sigma=0.5, k_max=k_max, device="cpu", batch_size=512)


def test_clear_labels_are_confirmed_and_the_order_is_by_frequency():
    image = np.array([0.0, 1.0, 0.1, 1.3, 0.0])
    prediction = smoother(5).predict(image, k=2, k_prime=2, seed=0, image_id="a")
    assert prediction.labels == (3, 1)
    assert prediction.confirmed == (True, True)
    assert prediction.radii[0] >= prediction.radii[1] > 0


def test_labels_that_the_draws_cannot_tell_apart_are_unconfirmed():
    image = np.array([2.0, 0.5, 0.5, 0.5, 0.5])
    prediction = smoother(5).predict(image, k=2, k_prime=1, seed=0, image_id="a")
    assert prediction.labels[0] == 0
    assert prediction.confirmed == (True, False)
    assert prediction.radii[1] == -np.inf


def test_the_set_is_certified_jointly_by_the_fresh_draws_with_half_of_alpha():
    image, one = np.array([1.0, 0.9, 0.6, 0.0]), smoother(4)
    prediction = one.predict(image, k=3, k_prime=2, draws=300, alpha=0.01, seed=5, image_id="a")
    hits = hits_from_ranked(one.votes(image, 300, seed=5, image_id="a"), k_prime=2, num_labels=4)
    expected = certified_radii(hits, prediction.labels, k=3, k_prime=2, sigma=0.5, alpha=0.005)
    assert prediction.set_radii == tuple(np.maximum(expected, np.sort(prediction.radii)[::-1]))
    assert len(prediction.set_radii) == 3
    assert prediction.set_radii[0] > prediction.set_radii[2]


def test_every_label_is_certified_alone_with_its_share_of_alpha():
    image, one = np.array([1.0, 0.9, 0.1, 0.0]), smoother(4)
    prediction = one.predict(image, k=2, k_prime=2, draws=300, alpha=0.01, seed=5, image_id="a")
    hits = hits_from_ranked(one.votes(image, 300, seed=5, image_id="a"), k_prime=2, num_labels=4)
    for label, radius in zip(prediction.labels, prediction.radii, strict=True):
        assert radius == certified_radii(hits, [label], k=2, k_prime=2, sigma=0.5, alpha=0.0025)[0]


def test_a_set_stays_at_least_as_far_as_its_labels_prove_alone():
    """In these draws the joint certificate of two labels ends before the second-best label's own."""
    hits = np.zeros((100, 6), bool)
    hits[:, 0], hits[:90, 1], hits[90:, 2] = True, True, True
    ranked = np.array([np.flatnonzero(row) for row in hits], np.uint8)
    said = confirm((0, 1, 2), ranked, TopK(3, 2), 6, sigma=0.5, alpha=0.01)
    alone = np.sort(said.radii)[::-1]
    together = certified_radii(hits, [0, 1, 2], k=3, k_prime=2, sigma=0.5, alpha=0.005)
    assert np.any(together < alone)
    assert said.set_radii == tuple(np.maximum(together, alone))
    assert list(said.set_radii) == sorted(said.set_radii, reverse=True)


def test_false_confirmations_stay_below_alpha():
    """Coverage only: it would not notice pilot draws used again, which the test of common noise below does."""
    image = np.array([0.505, 0.5, 0.5, 0.5, 0.5, 0.5])  # label 0 is right, by a hair
    one, alpha, runs = smoother(6, k_max=1), 0.2, 100
    predictions = [
        one.predict(image, k=1, k_prime=1, pilot_draws=40, draws=40, alpha=alpha, seed=seed, image_id="a")
        for seed in range(runs)
    ]
    false = sum(p.confirmed[0] and p.labels[0] != 0 for p in predictions)
    assert stats.binomtest(false, runs, alpha, alternative="greater").pvalue > 1e-3
    assert sum(p.labels[0] != 0 for p in predictions) > runs / 2, "the pilot draws must often be wrong"


def test_pilot_and_fresh_draws_have_no_noise_in_common():
    seen: list[bytes] = []

    def watch(images: Tensor) -> Tensor:
        seen.extend(row.numpy().tobytes() for row in images)
        return images.clone()

    f = load_classifier(watch, labels=["a", "b", "c"], output="logits")
    arguments = {"pilot_draws": 50, "draws": 50, "seed": 0, "image_id": "a"}
    Smoother(f, sigma=0.5, device="cpu").predict(np.zeros(3), k=1, k_prime=1, **arguments)
    assert len(seen) == len(set(seen)) == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [({"k": 0}, "k must"), ({"k": 6}, "k must"), ({"k_prime": 3}, "k_prime"), ({"alpha": 0.0}, "alpha")],
)
def test_what_makes_no_sense_is_refused(change, message):
    arguments = {"k": 1, "k_prime": 1, "seed": 0, "image_id": "a", **change}
    with pytest.raises(InvalidInputError, match=message):
        smoother(5).predict(np.zeros(5), **arguments)
