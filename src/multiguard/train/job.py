"""A training job by names and paths: open the data, build the network, train, write the model folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from multiguard.data import IndexedDataset, Pixels, hold_out, load_pixels, open_dataset, subset
from multiguard.data.catalog import dataset_info, default_split, validation_split
from multiguard.data.config import FOLDER
from multiguard.data.image import decoding_threads
from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, read_lines, require_folder
from multiguard.io.lock import folder_lock
from multiguard.models.backbone import Backbone, build_backbone, check_backbone, input_size
from multiguard.models.classifier import Classifier
from multiguard.models.config import PRETRAINED
from multiguard.models.denoiser import denoiser_sigma, load_ffdnet
from multiguard.models.efficientnet_lite import set_drop_path
from multiguard.models.loading import weights_checksum
from multiguard.models.model_folder import WEIGHTS_FILE, folder_checksum, load_backbone, load_folder, read_card
from multiguard.models.python_code import code_backbone
from multiguard.models.spec import Kind, parse_spec
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
    model: str | None = None  # what `parse_spec` takes, or an architecture; None for the cnn of the digits
    root: Path | None = None  # the dataset's folder
    weights: str | None = None  # a weights file, or "pretrained"
    labels: Path | None = None  # the label names of the head in that file, one per line, in the order of its scores
    size: int | None = None  # height and width of the images; None for the network's own
    split: str | None = None  # the training split; None for the dataset's default
    val_split: str | None = None  # None for the one of `split`; where there is none, or it is `split`, a held-out tenth
    images: int | None = None  # the number of training images, drawn at random; None for all
    val_images: int | None = None  # the number of validation images, drawn at random; None for all
    options: Mapping[str, Any] = field(default_factory=dict)  # the dataset's further options
    denoiser: Path | None = None  # FFDNet weights; the classifier then sees denoised images, clean ones without noise
    teacher: Path | None = None  # a model folder whose scores of clean images are learnt beside the labels
    cache: Path | None = None  # a folder for decoded images
    workers: int | None = None  # decoding threads; None for one per core
    half: bool = False  # whether the folder has the weights in half precision
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
        spec = parse_spec(self.start)
        return Path(spec.target) if spec.kind == "folder" else None

    @property
    def weights_folder(self) -> Path | None:
        """The model folder whose weights the user's code starts from, if it is one."""
        return Path(self.weights) if self.weights is not None and Path(self.weights).is_dir() else None

    @property
    def start_checksum(self) -> str | None:
        """The hash of the files that the start is read from; None where it is built from its name."""
        return weights_checksum(self.start)

    @property
    def image_size(self) -> int:
        """Height and width of the images: the given size, or the network's own."""
        if self.size is not None:
            return self.size
        spec = parse_spec(self.start)
        if (folder := self.weights_folder or self.start_folder) is not None:
            return read_card(folder).image_size[0]
        if spec.kind == "code":
            raise InvalidInputError(f"{self.start} does not say the size of its images; give --size")
        return input_size(self.start)


def run_job(
    job: TrainJob, on_epoch: OnEpoch | None = None, progress: OnProgress | None = None, discard: Discard | None = None
) -> TrainResult:
    """Run the job from names and paths to the model folder; a second call resumes it where it was interrupted.

    Every mistake in the job raises before the first image is decoded. The functions are those that `train` calls;
    `progress` is also called while images are decoded.
    """
    dataset_info(job.data)
    decoding_threads(job.workers)
    size = job.image_size
    config = job.hyperparameters.for_size((size, size))
    if job.denoiser is not None:
        denoiser_sigma(config.validation_noise)
    training, validation = open_splits(job)
    torch.manual_seed(config.seed)
    backbone = start_backbone(job, training)
    denoiser = None if job.denoiser is None else load_ffdnet(job.denoiser)
    teacher = _load_teacher(job, training)
    provenance = _provenance(job, backbone)
    card = new_card(backbone, training, validation, (size, size), config, denoiser, provenance)
    if discard is None:
        check_same_run(job.out, run_settings(card))
    if job.cache is not None:
        require_folder(job.cache)
    hooks: Mapping[str, Any] = {"on_epoch": on_epoch, "progress": progress, "discard": discard}
    more: Mapping[str, Any] = {"denoiser": denoiser, "teacher": teacher, "provenance": provenance, "half": job.half}
    with folder_lock(job.out):
        pixels, val_pixels = (_decode(job, split, progress) for split in (training, validation))
        return train(backbone, pixels, val_pixels, config, job.out, compiled=job.compiled, **more, **hooks)


def open_splits(job: TrainJob) -> tuple[IndexedDataset, IndexedDataset]:
    """Open the training and the validation split of a job, which have no image in common; nothing is decoded."""
    where, seed = {"root": job.root, "table": job.options.get("table")}, job.hyperparameters.seed
    split = job.split or default_split(job.data, "train", **where)
    val_split = job.val_split or validation_split(job.data, split, **where)
    names = _head_labels(job) if job.data == FOLDER else None  # the order is open only where the user's table has none
    options = {**job.options, **({} if names is None else {"label_names": names})}
    open_split = partial(open_dataset, job.data, root=job.root, size=job.image_size, **options)
    parts: tuple[IndexedDataset, IndexedDataset]
    dataset = open_split(split=split)
    if val_split in (None, split):
        wanted = _HELD_OUT if job.val_images is None else min(_HELD_OUT, job.val_images / max(len(dataset), 1))
        parts = hold_out(dataset, wanted, seed)
    else:
        parts = (dataset, open_split(split=val_split))
    limits = (job.images, job.val_images)
    training, validation = (
        part if most is None else subset(part, min(most, len(part)), seed)
        for part, most in zip(parts, limits, strict=True)
    )
    check_disjoint(training, validation)
    return training, validation


def _decode(job: TrainJob, split: IndexedDataset, progress: OnProgress | None) -> Pixels:
    on_image = None if progress is None else partial(progress, f"decoding {split.name}")
    return load_pixels(split, workers=job.workers, cache=job.cache, progress=on_image)


def _head_labels(job: TrainJob) -> tuple[str, ...] | None:
    """The label names of the head that the job starts from, in the order of its scores; None where it has no names."""
    if job.labels is not None:
        return tuple(read_lines(job.labels))
    folder = job.weights_folder or (None if job.model is None else job.start_folder)
    return None if folder is None else read_card(folder).label_names


def start_backbone(job: TrainJob, data: IndexedDataset) -> Backbone:
    """Build the network that a job starts from, for images of the job's size and the labels of its data."""
    spec, names = parse_spec(job.start), tuple(data.label_names)
    if (given := _head_labels(job)) not in (None, names):
        source = job.labels or job.start
        raise InvalidInputError(f"{source} was trained for other labels than those of {data.name}, or in another order")
    if spec.kind in ("hf", "onnx"):
        raise InvalidInputError(f"{job.start} is no network to train; train it in its own library, then vote with it")
    if spec.kind == "code" and job.hyperparameters.dropout:
        raise InvalidInputError(f"--dropout is for built-in and timm networks; {job.start} has its own")
    if job.weights is not None and spec.kind == "folder":
        raise InvalidInputError(f"--weights {job.weights} with {job.start}, which has its own: give one or the other")
    backbone = _BUILDERS.get(spec.kind, _built)(job, spec.target, names)
    if backbone.own_head and given is None:
        raise InvalidInputError(
            f"the head of {job.weights} has one score per label, and the file does not say which is which; give "
            "--labels FILE, one name per line in the order of its scores"
        )
    check_backbone(backbone, job.image_size, len(names))
    set_drop_path(backbone.network, job.hyperparameters.drop_path)
    check_denoiser(backbone.network, job.hyperparameters)
    return backbone


def _built(job: TrainJob, _: str, names: tuple[str, ...]) -> Backbone:
    dropout = job.hyperparameters.dropout
    return build_backbone(job.start, len(names), job.weights, dropout=dropout, size=job.image_size)


def _continued(job: TrainJob, folder: str, _: tuple[str, ...]) -> Backbone:
    return load_backbone(Path(folder), dropout=job.hyperparameters.dropout)


_BUILDERS: dict[Kind, Callable[[TrainJob, str, tuple[str, ...]], Backbone]] = {
    "folder": _continued,
    "code": lambda job, spec, names: code_backbone(spec, names, job.weights),
}


def _load_teacher(job: TrainJob, data: IndexedDataset) -> Classifier | None:
    if job.teacher is None:
        return None
    teacher = load_folder(job.teacher)
    if teacher.label_names != tuple(data.label_names):
        raise InvalidInputError(f"the teacher {job.teacher} has other labels than {data.name}, or in another order")
    if teacher.image_size != (job.image_size, job.image_size):
        raise InvalidInputError(f"the teacher {job.teacher} is for images of {teacher.image_size}; give --size")
    return teacher


def _provenance(job: TrainJob, backbone: Backbone) -> dict[str, Any]:
    """What the job starts from: recorded, and to be equal when it is resumed."""
    weights: dict[str, str] | None = None
    if job.weights is not None:
        file = Path(job.weights) / WEIGHTS_FILE if job.weights_folder is not None else Path(job.weights)
        digest = {} if job.weights == PRETRAINED else {"sha256": file_checksum(file)}
        weights = {"source": Path(job.weights).name, **digest}
    return {
        "data": job.data,
        "data_options": {n: str(value) if isinstance(value, Path) else value for n, value in job.options.items()},
        "model": job.start,
        "model_sha256": job.start_checksum,
        "weights": weights,
        "half": job.half,
        "teacher_sha256": None if job.teacher is None else folder_checksum(job.teacher),
        "fresh_tensors": list(backbone.fresh),
        "code_sha256": backbone.code_hash,
    }
