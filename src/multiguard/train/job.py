"""A whole training job by names and paths: open the data, build the network, train, write the folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from multiguard.data import Catalogued, Pixels, hold_out, load_pixels, open_dataset, subset
from multiguard.data.catalog import find_known, training_split, validation_split
from multiguard.data.image import decoding_threads
from multiguard.data.pixels import target_matrix
from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, require_folder
from multiguard.io.lock import folder_lock
from multiguard.models.backbone import PRETRAINED, Backbone, build_backbone, input_size, require_size
from multiguard.models.denoiser import load_ffdnet
from multiguard.models.folder import CARD_FILE, load_backbone, read_card
from multiguard.train.hyperparameters import Hyperparameters
from multiguard.train.loop import Progressed, TrainResult, train
from multiguard.train.settings import described, new_card, require_apart, require_own_run, run_settings
from multiguard.train.trainer import Record

_HELD_OUT = 0.1


@dataclass(frozen=True)
class Job:
    """What to train on, what to train, and how.

    Attributes:
        data: The dataset's name.
        out: The model folder to write, or to go on with.
        hyperparameters: How to train.
        model: "cnn", "cnn:WIDTH", "timm:NAME", or a model folder to start from; None for the digits' cnn.
        root: The dataset's folder.
        weights: A weights file, "pretrained", or None.
        size: Height and width of the images; None for the network's own.
        split: What to train on; None for the dataset's usual.
        val_split: What to validate on; None for the usual beside `split`, or a held-out tenth where there is none.
        images: A random part of so many training images; None for all.
        val_images: A random part of so many validation images; None for all.
        options: The dataset's further options.
        denoiser: An FFDNet weights file to put a denoiser in front of the classifier, which then learns from denoised
            images; with noise 0 in training, from clean ones.
        cache: A folder for decoded images.
        workers: Decoding threads; None for one a core.
        compiled: Whether torch.compile makes the forward and backward pass.
    """

    data: str
    out: Path
    hyperparameters: Hyperparameters
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


def run_job(
    job: Job,
    on_epoch: Callable[[Record], None] | None = None,
    progress: Progressed | None = None,
    discard: Callable[[Path], None] | None = None,
) -> TrainResult:
    """Do the job from names and paths to the model folder; run again, it goes on where it was interrupted.

    Everything that can be wrong with the job is looked at before the first image is decoded.

    Args:
        job: The job.
        on_epoch: As for `train`.
        progress: As for `train`, and called with the images that are decoded before.
        discard: As for `train`.
    """
    find_known(job.data)
    decoding_threads(job.workers)
    model = model_name(job)
    size = native_size(model) if job.size is None else job.size
    training, validation = open_splits(job, size)
    torch.manual_seed(job.hyperparameters.seed)
    backbone = start_backbone(job, training, size)
    denoiser = None if job.denoiser is None else load_ffdnet(job.denoiser)
    provenance = _provenance(job, model, backbone)
    splits = {
        name: described(part.name, part.ids, target_matrix(part))
        for name, part in (("train", training), ("val", validation))
    }
    card = new_card(backbone, training.label_names, (size, size), splits, job.hyperparameters, denoiser, provenance)
    if discard is None:
        require_own_run(job.out, run_settings(card))
    if job.cache is not None:
        require_folder(job.cache)
    more: dict[str, Any] = {
        "denoiser": denoiser,
        "provenance": provenance,
        "compiled": job.compiled,
        "progress": progress,
        "discard": discard,
    }
    with folder_lock(job.out):
        pixels, val_pixels = _decoded(job, training, progress), _decoded(job, validation, progress)
        return train(backbone, pixels, val_pixels, job.hyperparameters, job.out, on_epoch=on_epoch, **more)


def load_splits(job: Job, size: int) -> tuple[Pixels, Pixels]:
    """The training and the validation images of a job, decoded at this size."""
    training, validation = open_splits(job, size)
    return _decoded(job, training), _decoded(job, validation)


def open_splits(job: Job, size: int) -> tuple[Catalogued, Catalogued]:
    """The training and the validation split of a job, without a common image, none decoded yet."""
    where, seed = {"root": job.root, "table": job.options.get("table")}, job.hyperparameters.seed
    split = job.split or training_split(job.data, **where)
    val_split = job.val_split or validation_split(job.data, split, **where)
    training: Catalogued = _open(job, split, size)
    validation: Catalogued
    if val_split is None:
        training, validation = hold_out(training, _HELD_OUT, seed)
    else:
        validation = _open(job, val_split, size)
    training, validation = _part(training, job.images, seed), _part(validation, job.val_images, seed)
    require_apart(training, validation)
    return training, validation


def _decoded(job: Job, part: Catalogued, progress: Progressed | None = None) -> Pixels:
    counted = None if progress is None else partial(progress, f"decoding {part.name}")
    return load_pixels(part, workers=job.workers, cache=job.cache, progress=counted)


def _open(job: Job, split: str, size: int) -> Catalogued:
    return open_dataset(job.data, root=job.root, split=split, size=size, **job.options)


def _part(dataset: Catalogued, images: int | None, seed: int) -> Catalogued:
    return dataset if images is None else subset(dataset, images, seed)


def model_name(job: Job) -> str:
    """What the job starts from: as it says, or the digits' own network."""
    if job.model is not None:
        return job.model
    if job.data == "digits":
        return "cnn"
    raise InvalidInputError(f"no model given for '{job.data}'; take one of timm's, as in --model timm:resnet50")


def _is_folder(model: str) -> bool:
    return (Path(model) / CARD_FILE).is_file()


def native_size(model: str) -> int:
    """The height and width that a model folder or an architecture is at home with."""
    return read_card(Path(model)).image_size[0] if _is_folder(model) else input_size(model)


def start_backbone(job: Job, data: Catalogued, size: int) -> Backbone:
    """The network that a job starts from, seen to take images of this size."""
    model, dropout = model_name(job), job.hyperparameters.dropout
    if not _is_folder(model):
        backbone = build_backbone(model, len(data.label_names), job.weights, dropout=dropout, size=size)
    elif job.weights is not None:
        raise InvalidInputError(f"--weights {job.weights} beside the model folder {model}: give one or the other")
    elif read_card(Path(model)).label_names != tuple(data.label_names):
        raise InvalidInputError(f"{model} was trained for other labels than those of {data.name}")
    else:
        backbone = load_backbone(Path(model), dropout=dropout)
    require_size(backbone, size)
    return backbone


def _provenance(job: Job, model: str, backbone: Backbone) -> dict[str, Any]:
    """What the job was told and found: on record, and to be equal when it goes on."""
    return {
        "data": job.data,
        "data_options": {name: _plain(value) for name, value in job.options.items()},
        "model": model,
        "model_sha256": read_card(Path(model)).weights_sha256 if _is_folder(model) else None,
        "weights": _weights_record(job.weights),
        "fresh_tensors": list(backbone.fresh),
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _weights_record(weights: str | None) -> Mapping[str, str] | None:
    if weights is None or weights == PRETRAINED:
        return None if weights is None else {"source": PRETRAINED}
    return {"source": Path(weights).name, "sha256": file_checksum(Path(weights))}
