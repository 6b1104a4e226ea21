"""How the base classifier is trained, as a config."""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from multiguard.certify.noise import NO_NOISE, Noise, given_noise, parse_noise
from multiguard.errors import InvalidInputError
from multiguard.io.config import Config, Count, NotNegative, Positive, Threads, Whole, described, from_tree, to_tree
from multiguard.io.rounding import plain

LossName = Literal["asl", "bce", "softmax", "asl+softmax"]
Probability = Annotated[float, Meta(ge=0, le=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]

_NOISE = "gaussian:0.5"
_DEFAULTS = {"epochs": 45, "lr": 1e-3, "crop": 0.5, "shift": 0, "flip": True}
_OWN_DEFAULTS = {"digits": {"epochs": 4, "lr": 2e-3, "crop": 1.0, "shift": 2, "flip": False}}
# A model card has these, or the hashes of what they name, on their own; the last two do not change the model.
_BESIDE = {"sigma", "val_sigma", "model", "weights", "labels", "split", "val_split", "images", "val_images"}
_BESIDE |= {"teacher", "half", "workers", "compile"}


class TrainConfig(Config, frozen=True):
    """How to train the base classifier, and from what. None is the default of the dataset.

    `sigma` and `val_sigma` are Gaussian noise by its standard deviation, 0 for none, in place of `noise` and
    `val_noise`.

    >>> TrainConfig(sigma=0.25).resolved("digits").noise, TrainConfig().resolved("digits").lr
    ('gaussian:0.25', 0.002)
    >>> TrainConfig(ema=1)
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: ema is 1; expected a number of 0 or more, and below 1
    """

    noise: Annotated[
        str | None,
        described("Noise on training images, such as uniform:0.5, pixels:45 or band:4, or none [gaussian:0.5]."),
    ] = None
    val_noise: Annotated[str | None, described("Noise on validation images [noise].")] = None
    epochs: Annotated[
        Whole | None, described("Passes over the training images; 0 only validates and saves [45; digits 4].")
    ] = None
    batch: Annotated[Count, described("Images per step, over all processes.", "batch-size")] = 32
    optimizer: Annotated[Literal["adam", "adamw"], described("adam, or adamw (decoupled weight decay).")] = "adam"
    lr: Annotated[Positive | None, described("Peak learning rate in the one-cycle schedule [0.001; digits 0.002].")] = (
        None
    )
    warmup: Annotated[BelowOne, described("Fraction of the steps in which the learning rate rises.")] = 0.1
    weight_decay: Annotated[NotNegative, described("Weight decay of convolution and linear weights.")] = 1e-4
    dropout: Annotated[BelowOne, described("Dropout probability in front of the head.")] = 0.0
    drop_path: Annotated[BelowOne, described("Probability that the last block of a lite is skipped.")] = 0.0
    loss: Annotated[LossName, described("asl (asymmetric), bce, softmax or asl+softmax.")] = "asl"
    denoise_epochs: Annotated[Whole, described("First epochs, which train the U-Net in front alone.")] = 0
    denoise_weight: Annotated[NotNegative, described("Weight of the U-Net's squared error in the loss.")] = 0.0
    distill: Annotated[Probability, described("Weight of the teacher's scores in the loss, if any.")] = 0.5
    ema: Annotated[BelowOne, described("Largest decay of the moving average of the weights.")] = 0.999
    clip: Annotated[Positive, described("Largest gradient norm.")] = 1.0
    crop: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        described("Smallest fraction of the area that a crop keeps; 1 for no crop [0.5; digits 1]."),
    ] = None
    shift: Annotated[Whole | None, described("Largest random shift in pixels, in each direction [0; digits 2].")] = None
    flip: Annotated[bool | None, described("Mirror images at random [yes; digits no].")] = None
    colour: Annotated[Probability, described("Largest change of brightness, contrast and saturation.")] = 0.0
    cutmix: Annotated[Probability, described("Probability that a box of an image is another image's.")] = 0.0
    keep: Annotated[
        Literal["best", "last"], described("Epoch to save: best (highest noisy validation mAP) or last.")
    ] = "best"
    seed: Annotated[Whole, described("Seed of the order, crops, noise and initial weights.")] = 0
    sigma: Annotated[NotNegative | None, described("Gaussian noise on training images; 0 for none [0.5].")] = None
    sigma_max: Annotated[
        Positive | None, described("Largest sigma: each training image draws its own, from sigma to this [sigma].")
    ] = None
    val_sigma: Annotated[NotNegative | None, described("Gaussian noise on validation images [sigma].")] = None
    model: Annotated[
        str | None,
        described("cnn, lite:0, unet:40+lite:2, timm:NAME, module:function or a model folder [digits: cnn]."),
    ] = None
    weights: Annotated[str | None, described("A .safetensors or .pth file, or 'pretrained' to download timm's.")] = None
    labels: Annotated[Path | None, described("Label names of the head in that file, one per line, in score order.")] = (
        None
    )
    split: Annotated[str | None, described("The split to train on [train, or all of a folder without splits].")] = None
    val_split: Annotated[str | None, described("The split to validate on [matches split, or a held-out tenth].")] = None
    images: Annotated[int | None, described("Train on a random sample of this many images [all].")] = None
    val_images: Annotated[int | None, described("Validate on a random sample of this many images [all].")] = None
    teacher: Annotated[Path | None, described("A model folder whose scores of clean images are learnt too.")] = None
    half: Annotated[bool, described("Write the weights in half precision.")] = False
    workers: Annotated[Threads | None, described("Decoding threads [one per core].")] = None
    compile: Annotated[bool, described("Compile the forward and backward pass.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given_noise(self.sigma, self.noise)
        given_noise(self.val_sigma, self.val_noise)
        if self.sigma_max is not None:
            lowest = getattr(self.training_noise, "sigma", None)
            if lowest is None or lowest >= self.sigma_max:
                given = "no Gaussian noise" if lowest is None else f"sigma is {plain(lowest)}"
                fix = "expected sigma below sigma_max"
                raise InvalidInputError(f"sigma_max is {plain(self.sigma_max)} and {given}; {fix}")
        if self.epochs is not None and self.denoise_epochs > self.epochs:
            raise InvalidInputError(f"denoise_epochs is {self.denoise_epochs} of {self.epochs} epochs")

    def filled(self, data: str) -> "TrainConfig":
        """The same with the defaults of this dataset in place of None; the noise is not among them."""
        given = {name: value for name, value in to_tree(self).items() if value is not None}
        return from_tree(TrainConfig, {**_DEFAULTS, **_OWN_DEFAULTS.get(data, {}), **given})

    def resolved(self, data: str, size: tuple[int, int] | None = None) -> "TrainConfig":
        """The same with all defaults filled in, and the noise by its text.

        Args:
            data: The dataset's name.
            size: The height and width of the images, which "pixels:45" and "band:4" leave open.
        """
        val_noise = given_noise(self.val_sigma, self.val_noise)
        if size is not None:
            val_noise = None if val_noise is None else noise_text(_parse(val_noise, size))
        noise = noise_text(_parse(self._noise, size)) if size is not None else self._noise
        return self.filled(data).replace(noise=noise, val_noise=val_noise, sigma=None, val_sigma=None)

    @property
    def validation_noise(self) -> Noise | None:
        """The noise on validation images. The epoch is chosen at this noise, and the model is made for it."""
        return _parse(given_noise(self.val_sigma, self.val_noise) or self._noise)

    @property
    def training_noise(self) -> Noise | None:
        """The noise on training images."""
        return _parse(self._noise)

    def record(self) -> dict[str, Any]:
        """What decides the outcome of training apart from the images and the network to start from."""
        return {name: value for name, value in to_tree(self).items() if name not in _BESIDE}

    @property
    def _noise(self) -> str:
        return given_noise(self.sigma, self.noise) or _NOISE


def noise_text(noise: Noise | None) -> str:
    """The text of a noise, "none" for none.

    >>> noise_text(parse_noise("gaussian:0.50")), noise_text(None)
    ('gaussian:0.5', 'none')
    """
    return NO_NOISE if noise is None else str(noise)


def _parse(text: str, size: tuple[int, int] | None = None) -> Noise | None:
    return None if text == NO_NOISE else parse_noise(text, size)
