from dataclasses import fields

import numpy as np
import pytest

from multiguard.errors import InvalidInputError
from multiguard.train import Hyperparameters, hyperparameters_for
from multiguard.train.hyperparameters import DATASET_DEFAULTS, LossName, default_text
from multiguard.train.losses import LOSSES


def test_paper_defaults():
    """The defaults are the paper's; the digits have their own, and given values go first."""
    defaults = hyperparameters_for("coco")
    assert (defaults.loss, defaults.lr, defaults.batch) == ("asl", 1e-3, 32)
    assert defaults.validation_sigma == defaults.sigma == 0.5
    assert hyperparameters_for("coco", sigma=0.0, val_sigma=0.5).validation_sigma == 0.5
    assert not hyperparameters_for("digits").flip
    assert hyperparameters_for("digits", flip=True, epochs=None).flip


BAD = [
    *[{"sigma": -1}, {"batch": 0}, {"crop": 0}, {"ema": 1}, {"clip": 0}, {"epochs": -1}, {"weight_decay": -1}],
    *[{"sigma": np.inf}, {"sigma": np.nan}, {"val_sigma": np.nan}, {"lr": np.inf}, {"seed": -1}, {"seed": 2**70}],
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
    texts = [default_text(name) for name in ("lr", "flip", "val_sigma", "dropout")]
    assert texts == ["0.001; digits 0.002", "yes; digits no", "sigma", "0"]


def test_sigma_ramp():
    """Sigma rises linearly over the ramp, then stays."""
    ramped = Hyperparameters(sigma=1.0, ramp_epochs=3)
    assert [ramped.sigma_at(epoch) for epoch in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert Hyperparameters(sigma=0.5).sigma_at(0) == 0.5
