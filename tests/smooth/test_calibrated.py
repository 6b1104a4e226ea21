"""A calibrated classifier: the labels that enough fresh draws have, each with its radius."""

import numpy as np
import pytest
from scipy import stats
from tests.calibrations import calibration_of

from multiguard.certify import label_radii
from multiguard.errors import InvalidInputError
from multiguard.smooth import Smoother
from multiguard.smooth.predictor import Calibrated, LiveCalibrated

NAMES = ("cat", "dog", "emu")
IMAGE = np.array([1.2, 0.6, 0.0])


def smoother(scale: float = 1.0, **options) -> Smoother:
    """f ranks the numbers of its noisy input."""
    return Smoother(lambda rows: scale * rows, sigma=0.5, labels=NAMES, **options)


def calibrated(one: Smoother, **changes) -> Calibrated:
    return Calibrated(one, calibration_of(one, **changes))


def test_labels():
    """The labels are those that h of the m draws hit, with radii at level alpha / c, which pays for the choice."""
    one = smoother()
    own = calibrated(one)
    found = own.predict(IMAGE, alpha=0.03, noise_seed=1, image_id="a")
    votes = one.votes(IMAGE, 60, noise_seed=1, image_id="a")
    assert found.labels == own.calibration.chosen(own.calibration.rule.hits(votes, 3))
    radii = label_radii(votes, found.labels, own.calibration.rule, num_labels=3, noise=one.noise, alpha=0.01)
    assert found.radii == tuple(radii.tolist())
    assert found.radii[0] > 0
    assert found.promise == own.calibration.sentence
    assert found.promise in repr(found)


def test_fresh_draws():
    """Two requests for one image have different seeds and different draws, so that no answer tells of the next."""
    own = calibrated(smoother())
    lives = [LiveCalibrated(own, IMAGE) for _ in range(2)]
    for live in lives:
        live.draw(60)
    first, second = lives
    assert first.image_id == second.image_id
    assert first.noise_seed != second.noise_seed
    assert not np.array_equal(first.votes, second.votes)
    again = own.predict(IMAGE, noise_seed=first.noise_seed)
    assert again == first.prediction()


def test_steps():
    """The answer does not depend on the steps, comes after the last draw, and there is no draw after it."""
    own = calibrated(smoother())
    live = LiveCalibrated(own, IMAGE, noise_seed=2)
    live.draw(25)
    assert live.labels is None
    with pytest.raises(InvalidInputError, match="25 of the 60 draws"):
        live.prediction()
    live.draw(1000)
    live.draw(1)
    assert live.draws == 60
    assert live.prediction() == own.predict(IMAGE, noise_seed=2)


def test_no_label():
    """An image of which no label has enough hits gets none."""
    own = calibrated(smoother(), least_hits=60)
    found = own.predict(np.zeros(3))
    assert (found.labels, found.radii, found.names) == ((), (), ())


@pytest.mark.parametrize("changes", [{"clamp": True}, {"labels": ("cat", "dog", "cow")}])
def test_other_classifier(changes):
    """A calibration of another classifier promises nothing, and raises an error that says what differs."""
    own = calibrated(smoother()).calibration
    options = {"labels": NAMES, **changes}
    with pytest.raises(InvalidInputError, match=f"differs in {next(iter(changes))}"):
        Calibrated(Smoother(lambda rows: rows + 0, sigma=0.5, **options), own)


def test_size():
    """A calibration of images records their size; an image of another one raises an error."""
    one = Smoother(lambda rows: rows.mean((2, 3)), sigma=0.1, labels=NAMES)
    images = np.repeat(np.eye(3)[:, :, None, None], 64, axis=2).repeat(64, axis=3).repeat(20, axis=0)
    images = images * np.linspace(0.5, 1, 60)[:, None, None, None]
    data = images, [[row // 20] for row in range(60)]
    own = one.calibrate(data, recall=0.8, radius=0.1, draws=50, noise_seed=0, progress=False)
    assert own.calibration.image_size == (64, 64)
    assert own.predict(images[0]).names == ("cat",)
    with pytest.raises(InvalidInputError, match=r"size is 32x64, but the calibration is about images of 64x64"):
        own.predict(images[0, :, :32])


def test_soundness():
    """Under the worst attack on a half-space the promise is kept, and twice the hits would break it."""
    rng = np.random.default_rng(0)
    images, draws, radius, recall = 400, 40, 0.5, 0.8
    gaps = rng.normal(1.0, 0.8, images)  # how far the true label is ahead
    inputs, one = np.stack([gaps / 2, -gaps / 2, np.full(images, -9.0)], axis=1), smoother(k_max=1)
    options = {"draws": 200, "new_draws": draws, "noise_seed": 3, "progress": False}
    own = one.calibrate((inputs, [[0]] * images), recall=recall, radius=radius, **options)
    new = rng.normal(1.0, 0.8, 200_000)
    moved = new / (0.5 * np.sqrt(2)) - radius / 0.5  # the attack goes straight to the border
    chance = stats.norm.cdf(moved)
    assert stats.binom.sf(own.calibration.least_hits - 1, draws, chance).mean() >= recall - 0.02
    assert stats.binom.sf(2 * own.calibration.least_hits - 1, draws, chance).mean() < recall - 0.02
