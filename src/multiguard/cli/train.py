"""`multiguard train`: noise training from a dataset's name to a model folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from multiguard.cli.options import Data, Difficult, ForceOther, Root, Separator, Table, Workers, given
from multiguard.cli.progress import progress_bar, say
from multiguard.cli.terminal import echo
from multiguard.io.ranks import this_rank

if TYPE_CHECKING:
    from multiguard.train.loop import TrainResult

_Out = Annotated[Path, Option(help="The model folder to write; with a run in it, the run goes on.")]
_Model = Annotated[str | None, Option(help="cnn, cnn:WIDTH, timm:NAME or a model folder [digits: cnn].")]
_Weights = Annotated[str | None, Option(help="A .safetensors or .pth file, or 'pretrained' to download.")]
_Size = Annotated[int | None, Option(help="Height and width of the images [the network's own].")]
_Split = Annotated[str | None, Option(help="The split to train on [train, or all of a folder without splits].")]
_ValSplit = Annotated[
    str | None, Option(help="The split to validate on [what belongs to --split, or a held-out tenth].")
]
_Images = Annotated[int | None, Option(help="Train on a random part of so many images.")]
_ValImages = Annotated[int | None, Option(help="Validate on a random part of so many images.")]
_Denoiser = Annotated[Path | None, Option(help="FFDNet weights: a denoiser in front, in training and after.")]
_Cache = Annotated[Path | None, Option(help="A folder to keep decoded images in.")]
_Compile = Annotated[bool, Option("--compile", help="Compile the forward and backward pass.")]
_Sigma = Annotated[float | None, Option(help="Noise on training images in [0, 1]; 0 for none [0.5].")]
_ValSigma = Annotated[float | None, Option(help="Noise on validation images [sigma].")]
_Epochs = Annotated[int | None, Option(help="Passes over the images; 0 only validates [45; digits 4].")]
_Batch = Annotated[int | None, Option(help="Images a step, all processes together [32].")]
_Lr = Annotated[float | None, Option(help="Peak learning rate of Adam [0.001; digits 0.002].")]
_Warmup = Annotated[float | None, Option(help="Share of the steps in which the rate climbs [0.1].")]
_Decay = Annotated[float | None, Option(help="L2 on the weights [0.0001].")]
_Dropout = Annotated[float | None, Option(help="Share of the head's inputs that a step leaves out [0].")]
_Loss = Annotated[str | None, Option(help="asl or bce [asl].")]
_Ramp = Annotated[int | None, Option(help="Epochs in which sigma climbs from near 0 [0].")]
_Ema = Annotated[float | None, Option(help="Decay of the moving average of the weights [0.999].")]
_Clip = Annotated[float | None, Option(help="Largest gradient norm [1].")]
_Crop = Annotated[float | None, Option(help="Least share of the area that a crop keeps [0.5; digits 1].")]
_Shift = Annotated[int | None, Option(help="Most pixels an image is moved [0; digits 2].")]
_Flip = Annotated[bool | None, Option(help="Mirror images at random [yes; digits no].")]
_Keep = Annotated[str | None, Option(help="Whose weights are left: the best epoch's, or the last's [best].")]
_Seed = Annotated[int | None, Option(help="Decides order, crops, noise and first weights [0].")]


def train_command(
    data: Data,
    out: _Out,
    root: Root = None,
    model: _Model = None,
    weights: _Weights = None,
    size: _Size = None,
    split: _Split = None,
    val_split: _ValSplit = None,
    images: _Images = None,
    val_images: _ValImages = None,
    table: Table = None,
    separator: Separator = None,
    difficult: Difficult = None,
    denoiser: _Denoiser = None,
    cache: _Cache = None,
    workers: Workers = None,
    compile_: _Compile = False,
    sigma: _Sigma = None,
    val_sigma: _ValSigma = None,
    epochs: _Epochs = None,
    batch: _Batch = None,
    lr: _Lr = None,
    warmup: _Warmup = None,
    weight_decay: _Decay = None,
    dropout: _Dropout = None,
    loss: _Loss = None,
    ramp_epochs: _Ramp = None,
    ema: _Ema = None,
    clip: _Clip = None,
    crop: _Crop = None,
    shift: _Shift = None,
    flip: _Flip = None,
    keep: _Keep = None,
    seed: _Seed = None,
    force: ForceOther = False,
) -> None:
    """Train a base classifier under Gaussian noise and write its model folder.

    The same command goes on after an interruption, and runs on several GPUs under torchrun.

    Example: multiguard train --data digits --sigma 0.25 --out runs/digits
    """
    _train(**locals())


def _train(*, data: str, out: Path, compile_: bool, force: bool, **rest: Any) -> None:
    from dataclasses import fields

    from multiguard.pipeline.discarding import discard_model
    from multiguard.pipeline.places import require_no_other
    from multiguard.train.hyperparameters import Hyperparameters, hyperparameters_for
    from multiguard.train.job import Job, run_job

    require_no_other(out, "a model")
    recipe = hyperparameters_for(data, **{field.name: rest.pop(field.name) for field in fields(Hyperparameters)})
    _say_if_untrained(rest["model"], rest["weights"])
    options = given(**{name: rest.pop(name) for name in ("table", "separator", "difficult")})
    job = Job(data, out, recipe, options=options, compiled=compile_, **rest)
    with progress_bar("images") as progress:
        result = run_job(job, show_epoch, progress, discard_model if force else None)
    if this_rank().is_main:
        _show_result(result)


def _say_if_untrained(model: str | None, weights: str | None) -> None:
    if this_rank().is_main and weights is None and model is not None and model.startswith("timm:"):
        echo(f"{model} starts from random weights; give --weights FILE, or --weights pretrained to download")


def show_epoch(record: dict[str, Any]) -> None:
    """Print one line about an epoch of training."""
    rate = record["images_per_second"]
    say(
        f"epoch {record['epoch']:3d}  sigma {record['sigma']:.2f}  loss {record['loss']:.3f}  "
        f"mAP {record['map_noisy']:.4f} noisy {record['map_clean']:.4f} clean  {rate:,.0f} images/s"
    )


def _show_result(result: "TrainResult") -> None:
    fresh = result.card.training["fresh_tensors"]
    if fresh:
        echo(f"not in the weights file, trained from scratch: {', '.join(fresh)}")
    kept, which = result.kept, result.card.training["recipe"]["keep"]
    echo(
        f"{which} epoch {kept['epoch']}: mAP {kept['map_noisy']:.4f} at sigma {result.card.sigma:g}, "
        f"{kept['map_clean']:.4f} without noise"
    )
    echo(f"model: {result.folder}")
