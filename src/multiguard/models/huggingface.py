"""`hf:FOLDER`: a Hugging Face image classifier saved in a local folder."""

import math
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
from multiguard.models.weights import import_library, summary

_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_INDEX = "model.safetensors.index.json"
_MULTI_LABEL = "multi_label_classification"
_UNIT = 1 / 255
_SAFE = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
_MAX_JSON = 1 << 23  # bytes


class _Logits(nn.Module):
    """The model's logits as a plain tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=images).logits
        return logits


def load_hf(folder: str, options: ModelOptions) -> Classifier:
    """The multi-label classifier in a local folder, in float32, every tensor from its safetensors; no code is run."""
    path, spec = Path(folder), f"hf:{folder}"
    options.refuse_weights(spec)
    if options.output not in (None, "logits"):
        raise ModelError(f"{spec} returns logits; leave out output={options.output!r}.")
    config = _read_json(path / _CONFIG, spec)
    check_config(config, spec)
    _refuse_other_files(path, spec)
    if (kind := config.get("problem_type")) != _MULTI_LABEL:
        raise ModelError(f"{spec}: its config.json has problem_type {kind!r}, not {_MULTI_LABEL!r}.")
    mean, std = _normalisation(path, spec)
    digest = hf_checksum(folder)
    model = _load_model(path, config, spec)
    labels = [str(model.config.id2label.get(index, index)) for index in range(len(model.config.id2label))]
    filled = options.fill(labels=labels, output="logits", mean=mean, std=std)
    return filled.make_classifier(_Logits(model), spec, digest)


def hf_checksum(folder: str) -> str:
    """The hash of all that is read of a folder: the tensors, and the files that determine how they are used."""
    path = Path(folder)
    try:
        return files_checksum([path / _CONFIG, path / _PREPROCESSOR, *sorted(path.glob("*.safetensors"))])
    except OSError as error:
        raise ModelError(f"hf:{folder}: {error.filename} cannot be read: {error.strerror}") from error


def _load_model(path: Path, config: dict[str, Any], spec: str) -> Any:
    transformers = import_library("transformers", "hf")
    dtype = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    options, maker = {dtype: torch.float32}, transformers.AutoModelForImageClassification
    try:
        parsed = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(config)
        with torch.device("meta"), size_limit(*_stored_size(path), spec):
            maker.from_config(parsed, trust_remote_code=False, **options)
        model, info = maker.from_pretrained(path, config=parsed, output_loading_info=True, **_SAFE, **options)
    except ModelError:
        raise
    except Exception as error:  # a config that fits no model may raise anything
        raise ModelError(f"{spec} cannot be loaded: {summary(error)}") from error
    # A checkpoint without its head, for example, leaves tensors at their random values.
    wrong = sorted(str(key) for key in (*info["missing_keys"], *info["mismatched_keys"]))
    if wrong:
        raise ModelError(
            f"{spec}: its safetensors lack, or have in another shape, {', '.join(wrong[:4])} ({len(wrong)} in all), "
            "which would stay random; save the complete model after training."
        )
    return model


def _stored_size(path: Path) -> tuple[int, int]:
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


def _normalisation(path: Path, spec: str) -> tuple[list[float] | None, list[float] | None]:
    """Mean and standard deviation for pixels in [0, 1], from the folder's image processor."""
    config = _read_json(path / _PREPROCESSOR, spec)
    rescaled, factor = config.get("do_rescale", True), config.get("rescale_factor", _UNIT)
    if not rescaled or not _is_number(factor) or abs(factor - _UNIT) > 1e-9:
        raise ModelError(
            f"{spec}: its image processor does not scale to [0, 1], so a radius would not be in pixels; wrap the model "
            "in a callable that scales its input."
        )
    if not config.get("do_normalize", True):
        return None, None
    return _numbers(config, "image_mean", spec), _numbers(config, "image_std", spec)


def _numbers(config: dict[str, Any], name: str, spec: str) -> list[float]:
    values = config.get(name)
    if not isinstance(values, list) or not values or not all(_is_number(value) for value in values):
        raise ModelError(f"{spec}: {_PREPROCESSOR} has {name} = {str(values)[:60]!r}, not a list of numbers.")
    return [float(value) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_json(path: Path, spec: str) -> dict[str, Any]:
    try:
        return decode_json(read_regular(path, _MAX_JSON), dict[str, Any])
    except (OSError, ValueError) as error:
        raise ModelError(f"{spec}: {path.name} cannot be read as a JSON object: {error}") from error
