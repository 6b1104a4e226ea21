"""A whole training job by names and paths: open the data, build the network, train, write the folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from multiguard.data import Dataset, Pixels, hold_out, load_pixels, open_dataset, subset
from multiguard.data.catalog import find_known
from multiguard.errors import InvalidInputError
from multiguard.files import file_hash
from multiguard.models.backbone import PRETRAINED, Backbone, build_backbone, input_size
from multiguard.models.denoiser import FFDNet, load_ffdnet
from multiguard.models.folder import CARD_FILE, load_backbone, read_card
from multiguard.train.engine import Record
from multiguard.train.loop import TrainResult, train
from multiguard.train.recipe import Recipe

_HELD_OUT = 0.1


@dataclass(frozen=True)
class Job:
    """What to train on, what to train, and how.

    Attributes:
        data: The dataset's name.
        out: The model folder to write, or to go on with.
        recipe: How; with a denoiser, its sigma is the noise of validation, and training sees none.
        model: "cnn", "cnn:WIDTH", "timm:NAME", or a model folder to start from; None for the digits' cnn.
        root: The dataset's folder.
        weights: A weights file, "pretrained", or None.
        size: Height and width of the pictures; None for the network's own.
        split: What to train on; None for the dataset's usual.
        val_split: What to validate on; None for the usual, or a held-out tenth where there is none.
        images: A random part of so many training pictures; None for all.
        val_images: A random part of so many validation pictures; None for all.
        options: The dataset's further options.
        denoiser: An FFDNet weights file to put a denoiser in front of the classifier.
        cache: A folder for decoded pictures.
        workers: Decoding threads; None for one a core.
        compiled: Whether torch.compile makes the forward and backward pass.
    """

    data: str
    out: Path
    recipe: Recipe
    model: str | None = None
    root: Path | None = None
    weights: str | None = None
    size: int | None = None
    split: str | None = None
    val_split: str | None = None
    images: int | None = None
    val_images: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    denoiser: Path | None = None
    cache: Path | None = None
    workers: int | None = None
    compiled: bool = False


def run_job(job: Job, on_epoch: Callable[[Record], None] | None = None) -> TrainResult:
    """Do the job from names and paths to the model folder; run again, it goes on where it was interrupted."""
    find_known(job.data)
    model = _model_name(job)
    pixels, val_pixels = load_splits(job, job.size or _native_size(model))
    torch.manual_seed(job.recipe.seed)
    backbone = _backbone(model, job, pixels)
    denoiser, recipe = _denoised(job)
    provenance = {
        "data": job.data,
        "model": model,
        "weights": _weights_record(job.weights),
        "fresh_tensors": list(backbone.fresh),
    }
    return train(
        backbone,
        pixels,
        val_pixels,
        recipe,
        job.out,
        denoiser=denoiser,
        provenance=provenance,
        compiled=job.compiled,
        on_epoch=on_epoch,
    )


def load_splits(job: Job, size: int) -> tuple[Pixels, Pixels]:
    """The training and the validation pictures of a job, decoded at this size."""
    known, seed = find_known(job.data), job.recipe.seed
    validation: Dataset
    training = _open(job, job.split or known.train_split, size)
    val_split = job.val_split or known.val_split
    if val_split is None:
        training, validation = hold_out(training, _HELD_OUT, seed)
    else:
        validation = _open(job, val_split, size)
    parts = (_part(training, job.images, seed), _part(validation, job.val_images, seed))
    first, second = (load_pixels(part, workers=job.workers, cache=job.cache) for part in parts)
    return first, second


def _open(job: Job, split: str, size: int) -> Dataset:
    return open_dataset(job.data, root=job.root, split=split, size=size, **job.options)


def _part(dataset: Dataset, images: int | None, seed: int) -> Dataset:
    return dataset if images is None else subset(dataset, images, seed)


def _model_name(job: Job) -> str:
    if job.model is not None:
        return job.model
    if job.data == "digits":
        return "cnn"
    raise InvalidInputError(f"no model given for '{job.data}'; take one of timm's, as in --model timm:resnet50")


def _is_folder(model: str) -> bool:
    return (Path(model) / CARD_FILE).is_file()


def _native_size(model: str) -> int:
    return read_card(Path(model)).image_size[0] if _is_folder(model) else input_size(model)


def _backbone(model: str, job: Job, pixels: Pixels) -> Backbone:
    if not _is_folder(model):
        return build_backbone(model, len(pixels.label_names), job.weights, dropout=job.recipe.dropout)
    if job.weights is not None:
        raise InvalidInputError(f"--weights {job.weights} beside the model folder {model}: give one or the other")
    if read_card(Path(model)).label_names != pixels.label_names:
        raise InvalidInputError(f"{model} was trained for other labels than those of {pixels.name}")
    return load_backbone(Path(model))


def _denoised(job: Job) -> tuple[FFDNet | None, Recipe]:
    if job.denoiser is None:
        return None, job.recipe
    clean = replace(job.recipe, sigma=0.0, val_sigma=job.recipe.validation_sigma)
    return load_ffdnet(job.denoiser), clean


def _weights_record(weights: str | None) -> Mapping[str, str] | None:
    if weights is None or weights == PRETRAINED:
        return None if weights is None else {"source": PRETRAINED}
    return {"source": Path(weights).name, "sha256": file_hash(Path(weights))}
