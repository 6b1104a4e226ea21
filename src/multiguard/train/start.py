"""What a training starts from: the images of its splits, the network, the teacher, and the record of all that."""

from functools import partial
from pathlib import Path
from typing import Any

from multiguard.data import IndexedDataset, hold_out, open_dataset, subset
from multiguard.data.config import FOLDER, DataConfig, default_split, validation_split
from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, read_lines
from multiguard.models.backbone import Backbone, build_backbone, check_backbone, input_size
from multiguard.models.card import WEIGHTS_FILE, folder_checksum, read_card
from multiguard.models.code import code_backbone
from multiguard.models.config import PRETRAINED
from multiguard.models.loading import weights_checksum
from multiguard.models.model_folder import load_backbone, load_folder
from multiguard.models.networks import set_drop_path
from multiguard.models.spec import parse_spec
from multiguard.models.torch_model import TorchClassifier
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
    if (folder := _start_folder(config, data)) is not None:
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
    dataset = open_split(split=split)
    parts: tuple[IndexedDataset, IndexedDataset]
    if val_split in (None, split):
        wanted = _HELD_OUT if config.val_images is None else min(_HELD_OUT, config.val_images / max(len(dataset), 1))
        parts = hold_out(dataset, wanted, config.seed)
    else:
        parts = (dataset, open_split(split=val_split))
    training, validation = (
        part if most is None else subset(part, min(most, len(part)), config.seed)
        for part, most in zip(parts, (config.images, config.val_images), strict=True)
    )
    seen = set(training.ids)
    if common := [id_ for id_ in validation.ids if id_ in seen]:  # they would flatter every epoch
        images = f"{len(common)} images of {validation.name}, the first '{common[0]}', are also in {training.name}"
        raise InvalidInputError(f"{images}; validate on another split, or omit val_split to hold out a tenth")
    return training, validation


def start_backbone(config: TrainConfig, data: DataConfig, training: IndexedDataset) -> Backbone:
    """Build the network to start from, for images of the right size and the labels of the training images."""
    start, names, size = model_spec(config, data), tuple(training.label_names), image_size(config, data)
    spec, given = parse_spec(start), _head_labels(config, data)
    if given not in (None, names):
        source = config.labels or start
        raise InvalidInputError(f"{source} was trained for other labels than {training.name} has, or in another order")
    if spec.kind in ("hf", "onnx"):
        raise InvalidInputError(f"{start} is no network to train; train it in its own library, then vote with it")
    if spec.kind == "code" and config.dropout:
        raise InvalidInputError(f"dropout is for built-in and timm networks; {start} has its own")
    if spec.kind == "folder" and config.weights is not None:
        raise InvalidInputError(f"--weights {config.weights} with {start}, which has its own: give one or the other")
    if spec.kind == "folder":
        backbone = load_backbone(Path(spec.target), dropout=config.dropout)
    elif spec.kind == "code":
        backbone = code_backbone(spec.target, names, config.weights)
    else:
        backbone = build_backbone(start, len(names), config.weights, dropout=config.dropout, size=size)
    if backbone.own_head and given is None:
        raise InvalidInputError(
            f"the head of {config.weights} has one score per label, and the file does not say which is which; give "
            "--labels FILE, one name per line in the order of its scores"
        )
    check_backbone(backbone, size, len(names))
    set_drop_path(backbone.network, config.drop_path)
    check_denoiser(backbone.network, config)
    return backbone


def load_teacher(config: TrainConfig, data: DataConfig, training: IndexedDataset) -> TorchClassifier | None:
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
        file = Path(config.weights)
        weights = {"source": file.name}
        if config.weights != PRETRAINED:
            weights["sha256"] = file_checksum(file / WEIGHTS_FILE if file.is_dir() else file)
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


def _start_folder(config: TrainConfig, data: DataConfig) -> Path | None:
    """The model folder to start from: that of the weights of the user's code, or the model itself."""
    if config.weights is not None and Path(config.weights).is_dir():
        return Path(config.weights)
    spec = parse_spec(model_spec(config, data))
    return Path(spec.target) if spec.kind == "folder" else None


def _head_labels(config: TrainConfig, data: DataConfig) -> tuple[str, ...] | None:
    """The label names of the head to start from, in the order of its scores; None where it has no names."""
    if config.labels is not None:
        return tuple(read_lines(config.labels))
    folder = _start_folder(config, data)
    return None if folder is None else read_card(folder).label_names
