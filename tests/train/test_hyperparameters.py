from dataclasses import fields

import numpy as np
import pytest

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Uniform
from multiguard.errors import InvalidInputError
from multiguard.train import Hyperparameters, hyperparameters_for
from multiguard.train.hyperparameters import DATASET_DEFAULTS, LossName, default_text
from multiguard.train.losses import LOSSES


def test_paper_defaults():
    """The defaults are the paper's; the digits have their own, and given values go first."""
    defaults = hyperparameters_for("coco")
    assert (defaults.loss, defaults.lr, defaults.batch) == ("asl", 1e-3, 32)
    assert defaults.validation_noise == defaults.noise_at(0) == Gaussian(0.5)
    clean = hyperparameters_for("coco", sigma=0.0, val_sigma=0.5)
    assert (clean.noise_at(0), clean.validation_noise) == (None, Gaussian(0.5))
    assert not hyperparameters_for("digits").flip
    assert hyperparameters_for("digits", flip=True, epochs=None).flip


BAD = [
    *[{"batch": 0}, {"crop": 0}, {"ema": 1}, {"clip": 0}, {"epochs": -1}, {"weight_decay": -1}],
    *[{"lr": np.inf}, {"seed": -1}, {"seed": 2**70}],
    *[{"warmup": 1}, {"dropout": 1}, {"crop": 1.1}, {"ramp_epochs": -1}, {"shift": -1}, {"lr": 0}, {"clip": np.nan}],
    *[{"colour": 1.5}, {"cutmix": -0.1}, {"drop_path": 1}, {"denoise_epochs": -1}],
]


@pytest.mark.parametrize("bad", BAD)
def test_out_of_bounds(bad):
    """A value out of bounds is named with its bounds."""
    (name,) = bad
    with pytest.raises(InvalidInputError, match=f"{name} is {bad[name]}; it must be"):
        hyperparameters_for("coco", **bad)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epoch": 3}, "unknown hyperparameter 'epoch': did you mean 'epochs'"),
        ({"loss": "als"}, "unknown loss 'als': did you mean 'asl'"),
        ({"keep": "lest"}, "unknown keep 'lest'"),
        *[({name: value}, "sigma .* positive") for name in ("sigma", "val_sigma") for value in (-1, np.inf, np.nan)],
        ({"noise": "gauss:0.5"}, "unknown noise 'gauss': did you mean 'gaussian'"),
        ({"val_noise": "band:0"}, "width must be a whole number of at least 1"),
        ({"noise": "band:4", "sigma": 0.5}, "sigma is 0.5, Gaussian noise, and noise is band:4; give one of the two"),
        ({"noise": "pixels:40", "ramp_epochs": 2}, "ramp_epochs is 2, and pixels:40 cannot rise"),
        ({"epochs": 2, "denoise_epochs": 2}, "denoise_epochs is 2 of 2 epochs"),
    ],
)
def test_unknown_names(given, message):
    """An unknown hyperparameter, loss or epoch to keep names the nearest known one."""
    with pytest.raises(InvalidInputError, match=message):
        hyperparameters_for("coco", **given)


def test_declarations():
    """Every hyperparameter has a help text, every loss a function, and every dataset default a field."""
    assert all(field.metadata["help"].endswith(".") for field in fields(Hyperparameters))
    assert set(LOSSES) == set(LossName.__args__)
    assert all(Hyperparameters(**defaults) for defaults in DATASET_DEFAULTS.values())
    texts = [default_text(name) for name in ("lr", "flip", "val_noise", "dropout")]
    assert texts == ["0.001; digits 0.002", "yes; digits no", "noise", "0"]


@pytest.mark.parametrize("noise", [Gaussian, Uniform])
def test_ramp(noise):
    """Noise rises linearly over the ramp, then stays."""
    ramped = Hyperparameters(noise=str(noise(1.0)), ramp_epochs=3)
    assert [ramped.noise_at(epoch) for epoch in range(5)] == [*map(noise, (0.25, 0.5, 0.75, 1.0, 1.0))]
    assert Hyperparameters(noise=str(noise(0.5))).noise_at(0) == noise(0.5)


def test_open_size():
    """An ablation gets its number of pixels or columns from the images, and must fit them."""
    opened = Hyperparameters(noise="band:4", val_noise="pixels:40").for_size((8, 16))
    assert (opened.noise_at(0), opened.validation_noise) == (BandAblation(4, 16), PixelAblation(40, 128))
    assert opened.for_size((8, 16)) == opened
    with pytest.raises(InvalidInputError, match="'pixels:40/128', but the images have 256 pixels"):
        opened.for_size((8, 32))
