"""A prediction that grows draw by draw: the same draws as in one run, and claims that hold at every moment."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from multiguard.certify import Gaussian, Threshold, TopK
from multiguard.errors import InvalidInputError
from multiguard.smooth import LivePrediction, Smoother
from multiguard.smooth.prediction import confirm_labels
from multiguard.votes.types import as_array

IMAGE = np.array([1.5, 1.0, 0.3, 0.0, 0.0])


def smoother(score_threshold: float | None = None) -> Smoother:
    """f scores five labels by the numbers of its noisy input."""
    options = {"labels": list("abcde"), "output": "probabilities", "score_threshold": score_threshold}
    return Smoother(lambda x: x.clamp(0, 1), sigma=0.5, device="cpu", batch_size=64, **options)


@pytest.mark.parametrize("score_threshold", [None, 0.5])
def test_steps(score_threshold) -> None:
    """Draws in steps are the draws of one run, and each step has the best radii that any step so far has proved."""
    rule = TopK(2, 1) if score_threshold is None else Threshold(0.5)
    one = smoother(score_threshold)
    live = LivePrediction(one, IMAGE, rule, pilot_draws=40, alpha=0.05, noise_seed=1, image_id="a")
    pilot = as_array(one.votes(IMAGE, 40, noise_seed=1, image_id="a", stream="pilot"), rule)
    whole = as_array(one.votes(IMAGE, 210, noise_seed=1, image_id="a"), rule)
    live.draw(30)
    assert (live.labels, live.draws, live.pilot_draws_made) == (None, 0, 30)
    assert np.array_equal(live.hits, rule.hits(pilot[:30], 5))
    live.draw(10)
    assert live.labels == rule.returned(pilot, 5)
    assert live.prediction().radii == (-np.inf,) * len(live.labels)
    best = np.full(len(live.labels), -np.inf)
    for draws in (60, 110, 210):
        live.draw(draws - live.draws)
        found, options = (
            live.prediction(),
            {"num_labels": 5, "noise": Gaussian(0.5), "alpha": 0.05, "method": "betting"},
        )
        now = confirm_labels(live.labels, whole[:draws], rule, **options)
        best = np.maximum(best, now.radii)
        assert found.radii == tuple(best)
        assert all(np.greater_equal(found.set_radii, now.set_radii))
        assert (found.draws, found.noise_seed, found.image_id) == (draws, 1, "a")
    assert np.array_equal(live.votes, whole)
    assert np.array_equal(live.hits, rule.hits(whole, 5))
    assert best.max() > 0


def test_radii_never_fall() -> None:
    """What was proved stays proved, whatever the later draws say."""
    rate, rng = [1.0], torch.Generator().manual_seed(0)

    def turn(noisy: Tensor) -> Tensor:
        cat = (torch.rand(len(noisy), generator=rng) < rate[0]).float()
        return torch.stack([cat, 1 - cat], dim=1)

    one = Smoother(turn, sigma=0.5, labels=["cat", "dog"], device="cpu")
    live = LivePrediction(one, np.zeros(2), TopK(1, 1), pilot_draws=20, noise_seed=0, image_id="a")
    radii = []
    for draws, fraction in ((20, 1.0), (90, 0.99), (200, 0.6)):
        rate[0] = fraction
        live.draw(draws)
        radii.append(live.prediction().radii[0])
    assert radii == [-np.inf, radii[1], radii[1]]
    assert radii[1] > 0
    alone = confirm_labels(
        (0,), live.votes, TopK(1, 1), num_labels=2, noise=Gaussian(0.5), alpha=0.001, method="betting"
    )
    assert alone.radii[0] <= radii[1]


def test_any_moment() -> None:
    """A wrong label is confirmed at some moment no more often than alpha, though someone looks again and again."""
    f = Smoother(lambda x: x.clone(), sigma=0.5, k_max=1, labels=list("abcd"), device="cpu", batch_size=512)
    image, alpha, runs, false, wrong = np.array([0.505, 0.5, 0.5, 0.5]), 0.2, 60, 0, 0  # label 0 is right
    for seed in range(runs):
        live = LivePrediction(f, image, TopK(1, 1), pilot_draws=30, alpha=alpha, noise_seed=seed, image_id="a")
        live.draw(30)
        wrong += live.labels != (0,)
        for _ in range(6):
            live.draw(25)
            live.prediction()
        false += live.labels != (0,) and live.prediction().confirmed[0]
    assert stats.binomtest(false, runs, alpha, alternative="greater").pvalue > 1e-3
    assert wrong > runs / 2, "the pilot draws must often be wrong"


def test_too_early() -> None:
    """Before the labels are chosen there is no prediction, and before the first draw there are no votes."""
    live = LivePrediction(smoother(), IMAGE, TopK(2, 1), pilot_draws=10, noise_seed=0)
    assert not live.settled([0.1], 1000)
    assert live.hits.tolist() == [0] * 5
    with pytest.raises(InvalidInputError, match="0 of the 10 draws that choose the labels"):
        live.prediction()
    with pytest.raises(InvalidInputError, match="no draw that certifies"):
        _ = live.votes


@pytest.mark.parametrize("clamp", [False, True])
def test_noisy_copy(clamp) -> None:
    """The noisy copy of a draw is what the classifier got."""
    seen: list[np.ndarray] = []

    def watch(noisy: Tensor) -> Tensor:
        seen.append(noisy.numpy().copy())
        return noisy.flatten(1)[:, :3]

    one, image = Smoother(watch, sigma=0.5, labels=list("abc"), device="cpu", clamp=clamp), np.full((3, 2, 2), 0.5)
    one.find_labels(image)
    seen.clear()
    list(one.run([one.job(image, 4, noise_seed=3, image_id="a", stream="pilot")]))
    assert np.array_equal(one.noisy(image, 2, noise_seed=3, image_id="a", stream="pilot"), seen[0][2])
    assert not np.array_equal(one.noisy(image, 2, noise_seed=3, image_id="a"), seen[0][2])
