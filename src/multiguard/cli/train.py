"""`multiguard train`: noise training from a dataset's name to a model folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from multiguard.cli.console import echo, print_line, progress_bar
from multiguard.cli.options import Fields, ForceOther, with_options
from multiguard.data.config import DataConfig
from multiguard.io.lock import this_rank
from multiguard.train.config import TrainConfig

if TYPE_CHECKING:
    from multiguard.train import TrainResult

_NAMES = ("sigma", "noise", "epochs", "batch", "model", "weights", "labels", "images")
_Data = Annotated[DataConfig, Fields(("name", "root", "size"), others=("table",))]
_Out = Annotated[Path, Option(help="The model folder to write; a run in it resumes.")]
_Train = Annotated[TrainConfig, Fields(_NAMES)]


@with_options
def train_command(data: _Data, out: _Out, config: _Train, force: ForceOther = False) -> None:
    """Train a base classifier under noise and write its model folder.

    The same command resumes after an interruption, and runs on several GPUs under torchrun.

    Example: multiguard train --data digits --sigma 0.25 --out runs/digits
    """
    from multiguard.io.files import check_content
    from multiguard.train import train as run
    from multiguard.train.checkpoint import check_model_folder

    check_content(out, "a model")
    check_model_folder(out, force=force)
    is_main = this_rank().is_main
    if is_main and config.weights is None and (config.model or "").startswith("timm:"):
        echo(f"{config.model} starts from random weights; give --weights FILE, or --weights pretrained to download")
    with progress_bar("images") as progress:
        result = run(config, data, out=out, force=force, progress=progress, on_epoch=show_epoch)
    if is_main:
        _show_result(result, {"train": config.images, "val": config.val_images})


def show_epoch(record: dict[str, Any]) -> None:
    """Print one line about an epoch of training."""
    rate = record["images_per_second"]
    print_line(
        f"epoch {record['epoch']:3d}  loss {record['loss']:.3f}  "
        f"mAP {record['map_noisy']:.4f} noisy {record['map_clean']:.4f} clean  {rate:,.0f} images/s"
    )


def _show_result(result: "TrainResult", requested: Mapping[str, int | None]) -> None:
    from multiguard.data.sample import fewer_images
    from multiguard.train.config import noise_text

    for part, count in requested.items():
        there = result.card.training[part]["images"]
        if count is not None and count > there:
            echo(f"note: {result.card.training[part]['name']}: {fewer_images(count, there)}")
    fresh = result.card.training["fresh_tensors"]
    if fresh:
        echo(f"not in the weights file, trained from scratch: {', '.join(fresh)}")
    kept, which = result.kept, result.card.training["recipe"]["keep"]
    echo(
        f"{which} epoch {kept['epoch']}: mAP {kept['map_noisy']:.4f} under {noise_text(result.card.noise)}, "
        f"{kept['map_clean']:.4f} without noise"
    )
    echo(f"model: {result.folder}")
