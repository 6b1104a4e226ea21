"""The hyperparameters of training, each declared, documented and checked once.

Recipes and the command line are made from this declaration. It imports no torch, so that `--help` is quick.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Literal, get_args, get_origin, get_type_hints

from multiguard.certify.noise import BandAblation, Gaussian, Noise, PixelAblation, Uniform
from multiguard.certify.noise_arguments import NO_NOISE, checked_noise, given_noise, parse_noise
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

Keep = Literal["best", "last"]
LossName = Literal["asl", "bce", "softmax", "asl+softmax"]
Optimizer = Literal["adam", "adamw"]

_ABLATIONS = (PixelAblation.kind, BandAblation.kind)
_BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}


def _option(default: Any, text: str, **bounds: float) -> Any:
    return field(default=default, metadata={"help": text, "bounds": bounds})


@dataclass(frozen=True)
class Hyperparameters:
    """Everything that decides the outcome of training besides the data and the network.

    The metadata of each field holds its "help" and its "bounds"; a value out of bounds raises `InvalidInputError`.

    >>> Hyperparameters(noise="uniform:0.5", epochs=10).lr
    0.001
    >>> Hyperparameters(ema=1)
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: ema is 1; it must be at least 0 and below 1
    """

    noise: str = _option("gaussian:0.5", "Noise on training images, such as uniform:0.5, pixels:45 or band:4, or none.")
    val_noise: str | None = _option(None, "Noise on validation images.")
    epochs: int = _option(45, "Passes over the training images; 0 only validates and saves.", at_least=0)
    batch: int = _option(32, "Images per step, over all processes.", at_least=1)
    optimizer: Optimizer = _option("adam", "adam, or adamw (decoupled weight decay).")  # noqa: RUF009
    lr: float = _option(1e-3, "Peak learning rate in the one-cycle schedule.", above=0, below=inf)
    warmup: float = _option(0.1, "Fraction of the steps in which the learning rate rises.", at_least=0, below=1)
    weight_decay: float = _option(1e-4, "Weight decay of convolution and linear weights.", at_least=0, below=inf)
    dropout: float = _option(0.0, "Dropout probability in front of the head.", at_least=0, below=1)
    drop_path: float = _option(0.0, "Probability that the last block of a lite is skipped.", at_least=0, below=1)
    loss: LossName = _option("asl", "asl (asymmetric), bce, softmax or asl+softmax.")  # noqa: RUF009
    ramp_epochs: int = _option(0, "Epochs in which the noise rises linearly to its value.", at_least=0)
    denoise_epochs: int = _option(0, "First epochs, which train the U-Net in front alone.", at_least=0)
    denoise_weight: float = _option(0.0, "Weight of the U-Net's squared error in the loss.", at_least=0, below=inf)
    distill: float = _option(0.5, "Weight of the teacher's scores in the loss, if any.", at_least=0, at_most=1)
    ema: float = _option(0.999, "Largest decay of the moving average of the weights.", at_least=0, below=1)
    clip: float = _option(1.0, "Largest gradient norm.", above=0)
    crop: float = _option(0.5, "Smallest fraction of the area that a crop keeps; 1 for no crop.", above=0, at_most=1)
    shift: int = _option(0, "Largest random shift in pixels, in each direction.", at_least=0)
    flip: bool = _option(True, "Mirror images at random.")
    colour: float = _option(0.0, "Largest change of brightness, contrast and saturation.", at_least=0, at_most=1)
    cutmix: float = _option(0.0, "Probability that a box of an image is another image's.", at_least=0, at_most=1)
    keep: Keep = _option("best", "Epoch to save: best (highest noisy validation mAP) or last.")  # noqa: RUF009
    seed: int = _option(0, "Seed of the order, crops, noise and initial weights.", at_least=0, below=2**63)

    def __post_init__(self) -> None:
        for declared in fields(self):
            _check(declared.name, getattr(self, declared.name), declared.metadata["bounds"])
        for name in ("noise", "val_noise"):
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, checked_noise(text))
        if self.ramp_epochs and self.noise.startswith(_ABLATIONS):
            raise InvalidInputError(f"ramp_epochs is {self.ramp_epochs}, and {self.noise} cannot rise; leave it at 0")
        if self.denoise_epochs and self.denoise_epochs >= self.epochs:
            fix = "the network behind the U-Net needs epochs too"
            raise InvalidInputError(f"denoise_epochs is {self.denoise_epochs} of {self.epochs} epochs; {fix}")

    @property
    def validation_noise(self) -> Noise | None:
        """The noise on validation images. The epoch is chosen at this noise, and the model is made for it."""
        return parse_text(self.noise if self.val_noise is None else self.val_noise)

    def noise_at(self, epoch: int) -> Noise | None:
        """Return the noise of an epoch (from 0): it rises linearly until epoch `ramp_epochs`, then stays."""
        noise, part = parse_text(self.noise), min(1.0, (epoch + 1) / (self.ramp_epochs + 1))
        if isinstance(noise, Gaussian):
            return Gaussian(noise.sigma * part)
        return Uniform(noise.half_width * part) if isinstance(noise, Uniform) else noise

    def for_size(self, size: tuple[int, int]) -> "Hyperparameters":
        """Return the same for images of this height and width, which "pixels:45" and "band:4" leave open."""
        val_noise = None if self.val_noise is None else noise_text(parse_text(self.val_noise, size))
        return replace(self, noise=noise_text(parse_text(self.noise, size)), val_noise=val_noise)


def parse_text(text: str, size: tuple[int, int] | None = None) -> Noise | None:
    """The noise of a text, as `parse_noise` reads it; None for "none"."""
    return None if text == NO_NOISE else parse_noise(text, size)


def noise_text(noise: Noise | None) -> str:
    """The text of a noise, "none" for none.

    >>> noise_text(Gaussian(0.5)), noise_text(None)
    ('gaussian:0.5', 'none')
    """
    return NO_NOISE if noise is None else str(noise)


_DIGITS = {"epochs": 4, "lr": 2e-3, "crop": 1.0, "shift": 2, "flip": False}
DATASET_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"digits": _DIGITS}
_TYPES = get_type_hints(Hyperparameters)


def hyperparameters_for(
    data: str, *, sigma: float | None = None, val_sigma: float | None = None, **given: Any
) -> Hyperparameters:
    """Return the dataset's default hyperparameters with the given ones over them; None counts as not given.

    `sigma` and `val_sigma` are Gaussian noise by its standard deviation, 0 for none, in place of `noise` and
    `val_noise`.

    >>> hyperparameters_for("digits", sigma=0.25, lr=None)  # doctest: +ELLIPSIS
    Hyperparameters(noise='gaussian:0.25', val_noise=None, epochs=4, batch=32, optimizer='adam', lr=0.002, ...)
    """
    given["noise"] = given_noise(sigma, given.get("noise"))
    given["val_noise"] = given_noise(val_sigma, given.get("val_noise"))
    for name in given:
        if name not in _TYPES:
            raise InvalidInputError(unknown_name("hyperparameter", name, _TYPES))
    chosen = {name: value for name, value in given.items() if value is not None}
    return Hyperparameters(**{**DATASET_DEFAULTS.get(data, {}), **chosen})


def default_text(name: str) -> str:
    """Return the default of a hyperparameter and the datasets with another one, for a help text.

    >>> default_text("epochs")
    '45; digits 4'
    """
    others = [f"{data} {_text(values[name])}" for data, values in DATASET_DEFAULTS.items() if name in values]
    return "; ".join([_text(getattr(Hyperparameters, name)), *others])


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "noise", True: "yes", False: "no"}[value]  # only val_noise has no default of its own
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check(name: str, value: Any, bounds: Mapping[str, float]) -> None:
    if get_origin(_TYPES[name]) is Literal and value not in get_args(_TYPES[name]):
        raise InvalidInputError(unknown_name(name, str(value), get_args(_TYPES[name])))
    if value is not None and not all(_BOUNDS[bound](value, limit) for bound, limit in bounds.items()):
        expected = " and ".join(f"{bound.replace('_', ' ')} {limit}" for bound, limit in bounds.items())
        raise InvalidInputError(f"{name} is {value}; it must be {expected}")
