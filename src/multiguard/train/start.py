"""What a training starts from: the images of its splits, the network, the teacher, and the record of all that."""

from functools import partial
from pathlib import Path
from typing import Any

from multiguard.data import IndexedDataset, Pixels, hold_out, open_dataset, subset
from multiguard.data.config import FOLDER, DataConfig, default_split, validation_split
from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, read_lines
from multiguard.models.backbone import Backbone, build_backbone, check_backbone, input_size
from multiguard.models.classifier import Classifier
from multiguard.models.code import code_backbone
from multiguard.models.config import PRETRAINED
from multiguard.models.loading import weights_checksum
from multiguard.models.model_folder import WEIGHTS_FILE, folder_checksum, load_backbone, load_folder, read_card
from multiguard.models.networks import set_drop_path
from multiguard.models.spec import parse_spec
from multiguard.train.config import TrainConfig
from multiguard.train.trainer import check_denoiser

_HELD_OUT = 0.1


def model_spec(config: TrainConfig, data: DataConfig) -> str:
    """The model to start from: the given one, or the digits' own network."""
    if config.model is None and data.name != "digits":
        raise InvalidInputError(f"no model given for '{data.name}'; name one of timm's, as in --model timm:resnet50")
    return config.model or "cnn"


def image_size(config: TrainConfig, data: DataConfig) -> int:
    """Height and width of the images: the given size, or the network's own."""
    if data.size is not None:
        return data.size
    spec = model_spec(config, data)
    if (folder := _weights_folder(config) or _start_folder(spec)) is not None:
        return read_card(folder).image_size[0]
    if parse_spec(spec).kind == "code":
        raise InvalidInputError(f"{spec} does not say the size of its images; give --size")
    return input_size(spec)


def open_splits(config: TrainConfig, data: DataConfig) -> tuple[IndexedDataset, IndexedDataset]:
    """Open the training and the validation split, which have no image in common; nothing is decoded."""
    where: Any = {"root": data.root, "table": data.table}
    split = config.split or default_split(data.name, "train", **where)
    val_split = config.val_split or validation_split(data.name, split, **where)
    options = data.options
    if data.name == FOLDER and (names := _head_labels(config, data)) is not None:  # the table leaves the order open
        options["label_names"] = names
    open_split = partial(open_dataset, data.name, root=data.root, size=image_size(config, data), **options)
    parts: tuple[IndexedDataset, IndexedDataset]
    dataset = open_split(split=split)
    if val_split in (None, split):
        wanted = _HELD_OUT if config.val_images is None else min(_HELD_OUT, config.val_images / max(len(dataset), 1))
        parts = hold_out(dataset, wanted, config.seed)
    else:
        parts = (dataset, open_split(split=val_split))
    limits = (config.images, config.val_images)
    training, validation = (
        part if most is None else subset(part, min(most, len(part)), config.seed)
        for part, most in zip(parts, limits, strict=True)
    )
    check_disjoint(training, validation)
    return training, validation


def check_disjoint(training: IndexedDataset | Pixels, validation: IndexedDataset | Pixels) -> None:
    """Raise unless the splits have the same labels and no image in common, which would flatter every epoch."""
    if tuple(training.label_names) != tuple(validation.label_names):
        raise InvalidInputError(f"{training.name} and {validation.name} do not have the same labels in the same order")
    seen = set(training.ids)
    common = [id_ for id_ in validation.ids if id_ in seen]
    if common:
        images = f"{len(common)} images of {validation.name}, the first '{common[0]}', are also in {training.name}"
        raise InvalidInputError(f"{images}; validate on another split, or omit val_split to hold out a tenth")


def start_backbone(config: TrainConfig, data: DataConfig, training: IndexedDataset) -> Backbone:
    """Build the network to start from, for images of the right size and the labels of the training images."""
    start, names = model_spec(config, data), tuple(training.label_names)
    kind = parse_spec(start).kind
    if (given := _head_labels(config, data)) not in (None, names):
        source = config.labels or start
        raise InvalidInputError(
            f"{source} was trained for other labels than those of {training.name}, or in another order"
        )
    if kind in ("hf", "onnx"):
        raise InvalidInputError(f"{start} is no network to train; train it in its own library, then vote with it")
    if kind == "code" and config.dropout:
        raise InvalidInputError(f"dropout is for built-in and timm networks; {start} has its own")
    if config.weights is not None and kind == "folder":
        raise InvalidInputError(f"--weights {config.weights} with {start}, which has its own: give one or the other")
    backbone = _build(config, start, names, image_size(config, data))
    if backbone.own_head and given is None:
        raise InvalidInputError(
            f"the head of {config.weights} has one score per label, and the file does not say which is which; give "
            "--labels FILE, one name per line in the order of its scores"
        )
    check_backbone(backbone, image_size(config, data), len(names))
    set_drop_path(backbone.network, config.drop_path)
    check_denoiser(backbone.network, config)
    return backbone


def load_teacher(config: TrainConfig, data: DataConfig, training: IndexedDataset) -> Classifier | None:
    """The teacher, for the same labels and the same size of images."""
    if config.teacher is None:
        return None
    teacher, size = load_folder(config.teacher), image_size(config, data)
    if teacher.label_names != tuple(training.label_names):
        raise InvalidInputError(
            f"the teacher {config.teacher} has other labels than {training.name}, or in another order"
        )
    if teacher.image_size != (size, size):
        raise InvalidInputError(f"the teacher {config.teacher} is for images of {teacher.image_size}; give --size")
    return teacher


def provenance(config: TrainConfig, data: DataConfig, backbone: Backbone) -> dict[str, Any]:
    """What training starts from: recorded, and to be equal when it is resumed."""
    weights: dict[str, str] | None = None
    if config.weights is not None:
        folder = _weights_folder(config)
        file = Path(config.weights) if folder is None else folder / WEIGHTS_FILE
        digest = {} if config.weights == PRETRAINED else {"sha256": file_checksum(file)}
        weights = {"source": Path(config.weights).name, **digest}
    return {
        "data": data.name,
        "data_options": {n: str(value) if isinstance(value, Path) else value for n, value in data.options.items()},
        "model": model_spec(config, data),
        "model_sha256": weights_checksum(model_spec(config, data)),
        "weights": weights,
        "half": config.half,
        "teacher_sha256": None if config.teacher is None else folder_checksum(config.teacher),
        "fresh_tensors": list(backbone.fresh),
        "code_sha256": backbone.code_hash,
    }


def _build(config: TrainConfig, start: str, names: tuple[str, ...], size: int) -> Backbone:
    spec = parse_spec(start)
    if spec.kind == "folder":
        return load_backbone(Path(spec.target), dropout=config.dropout)
    if spec.kind == "code":
        return code_backbone(spec.target, names, config.weights)
    return build_backbone(start, len(names), config.weights, dropout=config.dropout, size=size)


def _start_folder(start: str) -> Path | None:
    """The model folder to start from, if it is one."""
    spec = parse_spec(start)
    return Path(spec.target) if spec.kind == "folder" else None


def _weights_folder(config: TrainConfig) -> Path | None:
    """The model folder whose weights the user's code starts from, if it is one."""
    return Path(config.weights) if config.weights is not None and Path(config.weights).is_dir() else None


def _head_labels(config: TrainConfig, data: DataConfig) -> tuple[str, ...] | None:
    """The label names of the head to start from, in the order of its scores; None where it has no names."""
    if config.labels is not None:
        return tuple(read_lines(config.labels))
    folder = _weights_folder(config) or _start_folder(model_spec(config, data))
    return None if folder is None else read_card(folder).label_names
