"""`hf:FOLDER`: a Hugging Face image classifier saved in a local folder."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import files_checksum
from multiguard.io.records import decode_json
from multiguard.models.classifier import Classifier
from multiguard.models.extras import first_line, require
from multiguard.models.options import ModelOptions

_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_INDEX = "model.safetensors.index.json"
_MULTI_LABEL = "multi_label_classification"
_UNIT = 1 / 255
# What a config may ask for that would run code from elsewhere, or take tensors that the record does not cover.
_CODE = ("auto_map", "custom_pipelines", "quantization_config", "transformers_weights", "base_model_name_or_path")
_ATTENTION = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_OWN_ATTENTION = (None, "eager", "sdpa")


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
    place, spec = Path(folder), f"hf:{folder}"
    options.refuse_weights(spec)
    if options.output not in (None, "logits"):
        raise ModelError(f"{spec} gives logits; leave out output={options.output!r}.")
    config = _read_json(place / _CONFIG, spec)
    _refuse_code(config, spec)
    _refuse_other_files(place, spec)
    if config.get("problem_type") != _MULTI_LABEL:
        raise ModelError(
            f"{spec}: its config.json has problem_type {config.get('problem_type')!r}, not {_MULTI_LABEL!r}."
        )
    mean, std = _normalisation(place, spec)
    model = _load_model(place, spec)
    return Classifier(
        _Logits(model),
        options.labels or _label_names(model),
        output="logits",
        mean=options.mean or mean,
        std=options.std or std,
        image_size=options.image_size,
        name=options.name or spec,
        weights_hash=_weights_hash(place),
    )


def _load_model(place: Path, spec: str) -> Any:
    transformers = require("transformers", "hf")
    dtype = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    try:
        model, found = transformers.AutoModelForImageClassification.from_pretrained(
            place,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **{dtype: torch.float32},
        )
    except Exception as error:  # a config that fits no model makes transformers fail in any way there is
        raise ModelError(f"{spec} cannot be loaded: {first_line(error)}") from error
    _check_filled(spec, found["missing_keys"], found["mismatched_keys"])
    return model


def _refuse_code(config: Any, spec: str) -> None:
    """Raises where the config, in any part of it, asks for code that is not transformers' own."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if (key in _CODE and value) or (key in _ATTENTION and value not in _OWN_ATTENTION):
            raise ModelError(
                f"{spec}: its config.json has {key} = {str(value)[:60]!r}, which may run code from elsewhere; "
                "save the model without it, or load it in a function of your own, module:function."
            )
        _refuse_code(value, spec)


def _refuse_other_files(place: Path, spec: str) -> None:
    """Raises where weights would be read that do not lie in the folder as safetensors."""
    if (place / "adapter_config.json").exists():
        raise ModelError(f"{spec} is an adapter of another model; merge the two, and save the whole model.")
    named = _read_json(place / _INDEX, spec).get("weight_map", {}) if (place / _INDEX).exists() else {}
    for name in set(map(str, named.values())) if isinstance(named, dict) else ():
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(f"{spec}: {_INDEX} names {name!r}, which is no safetensors file of the folder.")


def _check_filled(spec: str, missing: Collection[Any], mismatched: Collection[Any]) -> None:
    """Refuse a checkpoint that leaves tensors of the model at random, such as one without its head."""
    wrong = sorted(str(key) for key in (*missing, *mismatched))
    if wrong:
        raise ModelError(
            f"{spec}: its safetensors lack, or have in another shape, {', '.join(wrong[:4])} ({len(wrong)} in all), "
            "which would be left at random; save the whole model after it was trained."
        )


def _label_names(model: Any) -> list[str]:
    names: dict[int, str] = model.config.id2label
    return [str(names.get(index, index)) for index in range(len(names))]


def _normalisation(place: Path, spec: str) -> tuple[list[float] | None, list[float] | None]:
    """Mean and deviation for pixels in [0, 1], from the folder's image processor."""
    config = _read_json(place / _PREPROCESSOR, spec)
    rescaled, factor = config.get("do_rescale", True), config.get("rescale_factor", _UNIT)
    if not rescaled or not _is_number(factor) or abs(factor - _UNIT) > 1e-9:
        raise ModelError(
            f"{spec}: its image processor does not scale to [0, 1], so a radius would not be in pixels; "
            "wrap the model in a callable that does its own scaling."
        )
    if not config.get("do_normalize", True):
        return None, None
    mean, std = (_numbers(config.get(name), name, spec) for name in ("image_mean", "image_std"))
    return mean, std


def _numbers(found: Any, name: str, spec: str) -> list[float]:
    if not isinstance(found, list) or not found or not all(_is_number(value) for value in found):
        raise ModelError(f"{spec}: {_PREPROCESSOR} has {name} = {str(found)[:60]!r}, not a list of numbers.")
    return [float(value) for value in found]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_json(path: Path, spec: str) -> dict[str, Any]:
    try:
        return decode_json(path.read_bytes(), dict[str, Any])
    except (OSError, ValueError) as error:
        raise ModelError(f"{spec}: {path.name} cannot be read: {error}") from error


def _weights_hash(place: Path) -> str:
    """The hash of all that is read: the tensors, and what says how they are used."""
    return files_checksum([place / _CONFIG, place / _PREPROCESSOR, *sorted(place.glob("*.safetensors"))])
