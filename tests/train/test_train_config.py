import numpy as np
import pytest

from multiguard.certify import BandAblation, Gaussian, PixelAblation
from multiguard.errors import InvalidInputError
from multiguard.train import TrainConfig
from multiguard.train.config import LossName
from multiguard.train.losses import LOSSES


def test_paper_defaults():
    """The defaults are the paper's; the digits have their own, and given values go first."""
    defaults = TrainConfig().resolved("coco")
    assert (defaults.loss, defaults.lr, defaults.batch, defaults.epochs) == ("asl", 1e-3, 32, 45)
    assert defaults.validation_noise == defaults.training_noise == Gaussian(0.5)
    clean = TrainConfig(sigma=0.0, val_sigma=0.5).resolved("coco")
    assert (clean.training_noise, clean.validation_noise) == (None, Gaussian(0.5))
    assert TrainConfig().resolved("digits").flip is False
    assert TrainConfig(flip=True).resolved("digits").flip
    assert defaults.resolved("digits") == defaults


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"crop": 1.1}, "crop is 1.1; expected a number above 0, at most 1"),
        ({"lr": np.inf}, "lr is inf; expected a finite number"),
        ({"loss": "als"}, "loss: unknown value 'als': did you mean 'asl'"),
        ({"noise": "gauss:0.5"}, "unknown noise 'gauss': did you mean 'gaussian'"),
        ({"val_noise": "band:0"}, "width must be a whole number of at least 1"),
        ({"noise": "band:4", "sigma": 0.5}, "sigma is 0.5, Gaussian noise, and noise is band:4; give one of the two"),
        ({"epochs": 2, "denoise_epochs": 3}, "denoise_epochs is 3 of 2 epochs"),
    ],
)
def test_mistakes(given, message):
    """A value that is out of range, unknown, or contradicts another is named."""
    with pytest.raises(InvalidInputError, match=message):
        TrainConfig(**given)


def test_late_contradiction():
    """A contradiction with the dataset's default is named too."""
    with pytest.raises(InvalidInputError, match="denoise_epochs is 5 of 4 epochs"):
        TrainConfig(denoise_epochs=5).resolved("digits")


def test_losses():
    """Every loss has a function."""
    assert set(LOSSES) == set(LossName.__args__)


def test_open_size():
    """An ablation gets its number of pixels or columns from the images, and must fit them."""
    opened = TrainConfig(noise="band:4", val_noise="pixels:40").resolved("coco", (8, 16))
    assert (opened.training_noise, opened.validation_noise) == (BandAblation(4, 16), PixelAblation(40, 128))
    assert opened.resolved("coco", (8, 16)) == opened
    with pytest.raises(InvalidInputError, match="'pixels:40/128', but the images have 256 pixels"):
        opened.resolved("coco", (8, 32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sigma": 2}, "sigma_max is 1 and sigma is 2; expected sigma below sigma_max"),
        ({"sigma": 1}, "sigma_max is 1 and sigma is 1"),
        ({"noise": "none"}, "sigma_max is 1 and no Gaussian noise"),
        ({"noise": "uniform:0.5"}, "sigma_max is 1 and no Gaussian noise"),
    ],
)
def test_sigma_range(given, message):
    """A range of sigma needs Gaussian noise below its end; the record has both ends."""
    with pytest.raises(InvalidInputError, match=message):
        TrainConfig(sigma_max=1, **given)
    record = TrainConfig(sigma=0.12, sigma_max=1).resolved("coco").record()
    assert (record["noise"], record["sigma_max"]) == ("gaussian:0.12", 1)
