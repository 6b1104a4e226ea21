"""How the base classifier is trained, as a config."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from multiguard.io.config import Config, Count, NotNegative, Positive, Threads, Whole, described
from multiguard.train.hyperparameters import Hyperparameters, Keep, LossName, Optimizer


class TrainConfig(Config, frozen=True):
    """How to train the base classifier: every hyperparameter, and what to train on. None means the default.

    The noise in training and validation is the recipe's unless `noise` or `val_noise` says otherwise; `sigma` and
    `val_sigma` are Gaussian noise by its standard deviation.

    >>> TrainConfig(model="cnn", epochs=2).chosen()
    {'epochs': 2}
    """

    noise: Annotated[
        str | None,
        described("Noise on training images, such as uniform:0.5, pixels:45 or band:4, or none [gaussian:0.5]."),
    ] = None
    val_noise: Annotated[str | None, described("Noise on validation images [noise].")] = None
    epochs: Annotated[
        Whole | None, described("Passes over the training images; 0 only validates and saves [45; digits 4].")
    ] = None
    batch: Annotated[Count | None, described("Images per step, over all processes [32].", "batch-size")] = None
    optimizer: Annotated[Optimizer | None, described("adam, or adamw (decoupled weight decay) [adam].")] = None
    lr: Annotated[Positive | None, described("Peak learning rate in the one-cycle schedule [0.001; digits 0.002].")] = (
        None
    )
    warmup: Annotated[
        Annotated[float, Meta(ge=0, lt=1)] | None,
        described("Fraction of the steps in which the learning rate rises [0.1]."),
    ] = None
    weight_decay: Annotated[
        NotNegative | None, described("Weight decay of convolution and linear weights [0.0001].")
    ] = None
    dropout: Annotated[
        Annotated[float, Meta(ge=0, lt=1)] | None, described("Dropout probability in front of the head [0].")
    ] = None
    drop_path: Annotated[
        Annotated[float, Meta(ge=0, lt=1)] | None,
        described("Probability that the last block of a lite is skipped [0]."),
    ] = None
    loss: Annotated[LossName | None, described("asl (asymmetric), bce, softmax or asl+softmax [asl].")] = None
    ramp_epochs: Annotated[Whole | None, described("Epochs in which the noise rises linearly to its value [0].")] = None
    denoise_epochs: Annotated[Whole | None, described("First epochs, which train the U-Net in front alone [0].")] = None
    denoise_weight: Annotated[NotNegative | None, described("Weight of the U-Net's squared error in the loss [0].")] = (
        None
    )
    distill: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        described("Weight of the teacher's scores in the loss, if any [0.5]."),
    ] = None
    ema: Annotated[
        Annotated[float, Meta(ge=0, lt=1)] | None,
        described("Largest decay of the moving average of the weights [0.999]."),
    ] = None
    clip: Annotated[Positive | None, described("Largest gradient norm [1].")] = None
    crop: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        described("Smallest fraction of the area that a crop keeps; 1 for no crop [0.5; digits 1]."),
    ] = None
    shift: Annotated[Whole | None, described("Largest random shift in pixels, in each direction [0; digits 2].")] = None
    flip: Annotated[bool | None, described("Mirror images at random [yes; digits no].")] = None
    colour: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        described("Largest change of brightness, contrast and saturation [0]."),
    ] = None
    cutmix: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        described("Probability that a box of an image is another image's [0]."),
    ] = None
    keep: Annotated[Keep | None, described("Epoch to save: best (highest noisy validation mAP) or last [best].")] = None
    seed: Annotated[Whole | None, described("Seed of the order, crops, noise and initial weights [0].")] = None
    sigma: Annotated[NotNegative | None, described("Gaussian noise on training images; 0 for none [0.5].")] = None
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
    val_split: Annotated[str | None, described("The split to validate on [matches --split, or a held-out tenth].")] = (
        None
    )
    images: Annotated[int | None, described("Train on a random sample of this many images [all].")] = None
    val_images: Annotated[int | None, described("Validate on a random sample of this many images [all].")] = None
    denoiser: Annotated[Path | None, described("FFDNet weights for a denoiser in front of the network.")] = None
    teacher: Annotated[Path | None, described("A model folder whose scores of clean images are learnt too.")] = None
    cache: Annotated[bool, described("Keep decoded images in the run folder.")] = False
    workers: Annotated[Threads | None, described("Decoding threads [one per core].")] = None
    half: Annotated[bool, described("Write the weights in half precision.")] = False
    compile: Annotated[bool, described("Compile the forward and backward pass.")] = False

    def chosen(self) -> dict[str, Any]:
        """The hyperparameters that are given, by name."""
        names = [*(known.name for known in fields(Hyperparameters)), "sigma", "val_sigma"]
        named = {name: getattr(self, name) for name in names}
        return {name: value for name, value in named.items() if value is not None}
