"""A training job by names and paths: open the data, build the network, train, write the model folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from multiguard.data import IndexedDataset, Pixels, hold_out, load_pixels, open_dataset, subset
from multiguard.data.catalog import dataset_info, default_split, validation_split
from multiguard.data.image import decoding_threads
from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, require_folder
from multiguard.io.lock import folder_lock
from multiguard.models.backbone import PRETRAINED, Backbone, build_backbone, check_image_size, input_size
from multiguard.models.denoiser import load_ffdnet
from multiguard.models.efficientnet_lite import set_drop_path
from multiguard.models.model_folder import CARD_FILE, load_backbone, read_card
from multiguard.train.checkpoint import check_same_run, new_card, run_settings
from multiguard.train.hyperparameters import Hyperparameters
from multiguard.train.loop import Discard, OnEpoch, OnProgress, TrainResult, check_disjoint, train
from multiguard.train.trainer import check_denoiser

_HELD_OUT = 0.1


@dataclass(frozen=True)
class TrainJob:
    """What to train on, what to train, and how."""

    data: str  # the dataset's name
    out: Path  # the model folder to write, or to resume in
    hyperparameters: Hyperparameters
    model: str | None = None  # an architecture or a model folder; None for the cnn of the digits
    root: Path | None = None  # the dataset's folder
    weights: str | None = None  # a weights file, or "pretrained"
    size: int | None = None  # height and width of the images; None for the network's own
    split: str | None = None  # the training split; None for the dataset's default
    val_split: str | None = None  # None for the one that belongs to `split`, or else a held-out tenth
    images: int | None = None  # the number of training images, drawn at random; None for all
    val_images: int | None = None  # the number of validation images, drawn at random; None for all
    options: Mapping[str, Any] = field(default_factory=dict)  # the dataset's further options
    denoiser: Path | None = None  # FFDNet weights; the classifier then sees denoised images, clean ones at sigma 0
    cache: Path | None = None  # a folder for decoded images
    workers: int | None = None  # decoding threads; None for one per core
    compiled: bool = False  # whether to run the forward and backward pass through torch.compile

    @property
    def start(self) -> str:
        """The model to start from: the given one, or the digits' own network."""
        if self.model is None and self.data != "digits":
            raise InvalidInputError(
                f"no model given for '{self.data}'; name one of timm's, as in --model timm:resnet50"
            )
        return self.model or "cnn"

    @property
    def start_folder(self) -> Path | None:
        """The model folder to start from, if it is one."""
        folder = Path(self.start)
        return folder if (folder / CARD_FILE).is_file() else None

    @property
    def image_size(self) -> int:
        """Height and width of the images: the given size, or the network's own."""
        if self.size is not None:
            return self.size
        return input_size(self.start) if self.start_folder is None else read_card(self.start_folder).image_size[0]


def run_job(
    job: TrainJob, on_epoch: OnEpoch | None = None, progress: OnProgress | None = None, discard: Discard | None = None
) -> TrainResult:
    """Run the job from names and paths to the model folder; a second call resumes it where it was interrupted.

    Every mistake in the job raises before the first image is decoded. The functions are those that `train` calls;
    `progress` is also called while images are decoded.
    """
    dataset_info(job.data)
    decoding_threads(job.workers)
    config, size = job.hyperparameters, job.image_size
    training, validation = open_splits(job)
    torch.manual_seed(config.seed)
    backbone = start_backbone(job, training)
    denoiser = None if job.denoiser is None else load_ffdnet(job.denoiser)
    provenance = _provenance(job, backbone)
    card = new_card(backbone, training, validation, (size, size), config, denoiser, provenance)
    if discard is None:
        check_same_run(job.out, run_settings(card))
    if job.cache is not None:
        require_folder(job.cache)
    hooks: Mapping[str, Any] = {"on_epoch": on_epoch, "progress": progress, "discard": discard}
    more: Mapping[str, Any] = {"denoiser": denoiser, "provenance": provenance, "compiled": job.compiled}
    with folder_lock(job.out):
        pixels, val_pixels = (_decode(job, split, progress) for split in (training, validation))
        return train(backbone, pixels, val_pixels, config, job.out, **more, **hooks)


def open_splits(job: TrainJob) -> tuple[IndexedDataset, IndexedDataset]:
    """Open the training and the validation split of a job, which have no image in common; nothing is decoded."""
    where, seed = {"root": job.root, "table": job.options.get("table")}, job.hyperparameters.seed
    split = job.split or default_split(job.data, "train", **where)
    val_split = job.val_split or validation_split(job.data, split, **where)
    open_split = partial(open_dataset, job.data, root=job.root, size=job.image_size, **job.options)
    parts: tuple[IndexedDataset, IndexedDataset]
    dataset = open_split(split=split)
    parts = hold_out(dataset, _HELD_OUT, seed) if val_split is None else (dataset, open_split(split=val_split))
    training = parts[0] if job.images is None else subset(parts[0], job.images, seed)
    validation = parts[1] if job.val_images is None else subset(parts[1], job.val_images, seed)
    check_disjoint(training, validation)
    return training, validation


def _decode(job: TrainJob, split: IndexedDataset, progress: OnProgress | None) -> Pixels:
    on_image = None if progress is None else partial(progress, f"decoding {split.name}")
    return load_pixels(split, workers=job.workers, cache=job.cache, progress=on_image)


def start_backbone(job: TrainJob, data: IndexedDataset) -> Backbone:
    """Build the network that a job starts from, for images of the job's size."""
    folder, dropout = job.start_folder, job.hyperparameters.dropout
    if folder is None:
        labels = len(data.label_names)
        backbone = build_backbone(job.start, labels, job.weights, dropout=dropout, size=job.image_size)
    elif job.weights is not None:
        raise InvalidInputError(f"--weights {job.weights} with the model folder {folder}: give one or the other")
    elif read_card(folder).label_names != tuple(data.label_names):
        raise InvalidInputError(f"{folder} was trained for other labels than those of {data.name}")
    else:
        backbone = load_backbone(folder, dropout=dropout)
    check_image_size(backbone, job.image_size)
    set_drop_path(backbone.network, job.hyperparameters.drop_path)
    check_denoiser(backbone.network, job.hyperparameters)
    return backbone


def _provenance(job: TrainJob, backbone: Backbone) -> dict[str, Any]:
    """What the job starts from: recorded, and to be equal when it is resumed."""
    weights: dict[str, str] | None = None
    if job.weights is not None:
        digest = {} if job.weights == PRETRAINED else {"sha256": file_checksum(Path(job.weights))}
        weights = {"source": Path(job.weights).name, **digest}
    return {
        "data": job.data,
        "data_options": {n: str(value) if isinstance(value, Path) else value for n, value in job.options.items()},
        "model": job.start,
        "model_sha256": None if job.start_folder is None else read_card(job.start_folder).weights_sha256,
        "weights": weights,
        "fresh_tensors": list(backbone.fresh),
    }
