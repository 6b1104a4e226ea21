"""`hf:FOLDER`: a Hugging Face image classifier saved in a local folder."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import files_checksum, read_regular
from multiguard.io.records import decode_json
from multiguard.models.classifier import Classifier, ModelOptions
from multiguard.models.huggingface_config import check_config, size_limit
from multiguard.models.image_processor import (
    PREPROCESSOR,
    ImageProcessor,
    missing_processor,
    own_size,
    read_processor,
    timm_processor,
)
from multiguard.models.spec import HF_CONFIG
from multiguard.models.weight_files import import_library, summary

_INDEX = "model.safetensors.index.json"
MULTI_LABEL = "multi_label_classification"
_SAFE = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
_MAX_JSON = 1 << 23  # bytes


def load_hf(folder: str, options: ModelOptions) -> Classifier:
    """The multi-label classifier in a local folder, in float32, every tensor from its safetensors; no code is run."""
    path, spec = Path(folder), f"hf:{folder}"
    options.refuse_weights(spec)
    if options.output not in (None, "logits"):
        raise ModelError(f"{spec} returns logits; leave out output={options.output!r}.")
    config = read_config(path, spec)
    if (kind := config.get("problem_type")) != MULTI_LABEL:
        raise ModelError(f"{spec}: its config.json has problem_type {kind!r}, not {MULTI_LABEL!r}.")
    processor = find_processor(path, config, options, spec)
    digest = hf_checksum(folder)
    model, wrong = read_model(path, config, spec)
    if wrong:  # a checkpoint without its head, for example, leaves tensors at their random values
        raise ModelError(
            f"{spec}: its safetensors lack, or have in another shape, {', '.join(sorted(wrong.values())[:4])} "
            f"({len(wrong)} in all), which would stay random; save the complete model after training."
        )
    labels = own_labels(model.config)
    options.check_count(len(labels), spec)
    own = {"mean": processor.mean, "std": processor.std, "image_size": processor.image_size}
    network = _BlueFirst(model) if processor.flipped else model
    return options.fill(labels=labels, output="logits", **own).make_classifier(network, spec, digest)


def hf_checksum(folder: str) -> str:
    """The hash of all that is read of a folder: the tensors, and the files that determine how they are used."""
    path = Path(folder)
    names = [name for name in (HF_CONFIG, PREPROCESSOR) if name == HF_CONFIG or (path / name).exists()]
    try:
        return files_checksum([*(path / name for name in names), *sorted(path.glob("*.safetensors"))])
    except OSError as error:
        raise ModelError(f"hf:{folder}: {error.filename} cannot be read: {error.strerror}") from error


class _BlueFirst(nn.Module):
    """A network that takes its channels in the order blue, green, red."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Any:
        return self.model(images.flip(1))


def find_processor(path: Path, config: dict[str, Any], options: ModelOptions, spec: str) -> ImageProcessor:
    """How images become the network's input: as the folder says, or as the options do where it does not."""
    if (path / PREPROCESSOR).exists():
        return read_processor(_read_json(path / PREPROCESSOR, spec), config, spec)
    if options.mean is not None and options.std is not None:
        return ImageProcessor(image_size=own_size(config, spec))
    if config["model_type"] == "timm_wrapper":
        return timm_processor(config, spec)
    raise missing_processor(spec)


def own_labels(config: Any) -> tuple[str, ...]:
    """The label names of a parsed config, in the order of the scores."""
    return tuple(str(config.id2label.get(index, index)) for index in range(len(config.id2label)))


def read_config(path: Path, spec: str) -> dict[str, Any]:
    """The folder's config.json, which asks for nothing outside the folder; otherwise it raises `ModelError`."""
    config = _read_json(path / HF_CONFIG, spec)
    check_config(config, spec)
    _refuse_other_files(path, spec)
    return config


def build_model(config: dict[str, Any], size: tuple[int, int], spec: str) -> Any:
    """The network of a config, checked against the (numbers, tensors) that are stored before it takes any memory."""
    with _one_line(spec):
        maker, options = _maker()
        parsed = import_library("transformers", "hf").CONFIG_MAPPING[config["model_type"]].from_dict(config)
        with torch.device("meta"), size_limit(*size, spec):
            maker.from_config(parsed, trust_remote_code=False, **options)
        return maker.from_config(parsed, trust_remote_code=False, **options)


def read_model(path: Path, config: dict[str, Any], spec: str, **more: Any) -> tuple[Any, dict[str, str]]:
    """The network with the folder's tensors, and by name what they lack or have in another shape."""
    with _one_line(spec):
        maker, options = _maker()
        with torch.device("meta"):
            parsed = build_model(config, stored_size(path), spec).config
        model, info = maker.from_pretrained(path, config=parsed, output_loading_info=True, **_SAFE, **options, **more)
    wrong = [*info["missing_keys"], *info["mismatched_keys"]]  # the latter with both shapes
    return model, {key if isinstance(key, str) else key[0]: str(key) for key in wrong}


@contextmanager
def _one_line(spec: str) -> Iterator[None]:
    """A config that fits no model may raise anything."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{spec} cannot be loaded: {summary(error)}") from error


def _maker() -> tuple[Any, dict[str, Any]]:
    """What builds image classifiers, and its option for float32, which has had another name."""
    transformers = import_library("transformers", "hf")
    option = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    return transformers.AutoModelForImageClassification, {option: torch.float32}


def stored_size(path: Path) -> tuple[int, int]:
    """How many numbers the folder's tensors have, and how many tensors there are."""
    sizes: list[int] = []
    for file in path.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            sizes += [math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys()]  # noqa: SIM118
    if not sizes:
        raise ModelError(f"hf:{path} has no tensors in .safetensors files; save the model in that format.")
    return sum(sizes), len(sizes)


def _refuse_other_files(path: Path, spec: str) -> None:
    """Raises where weights would be read from anything but safetensors files in the folder."""
    if (path / "adapter_config.json").exists():
        raise ModelError(f"{spec} is an adapter of another model; merge the two and save the complete model.")
    named = _read_json(path / _INDEX, spec).get("weight_map", {}) if (path / _INDEX).exists() else {}
    for name in set(map(str, named.values())) if isinstance(named, dict) else ():
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(f"{spec}: {_INDEX} names {name!r}, which is not a safetensors file in the folder.")


def _read_json(path: Path, spec: str) -> dict[str, Any]:
    try:
        return decode_json(read_regular(path, _MAX_JSON), dict[str, Any])
    except (OSError, ValueError) as error:
        raise ModelError(f"{spec}: {path.name} cannot be read as a JSON object: {error}") from error
