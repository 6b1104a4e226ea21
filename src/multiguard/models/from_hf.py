"""`hf:FOLDER`: a Hugging Face image classifier saved in a local folder."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.files import files_hash
from multiguard.models.classifier import Classifier
from multiguard.models.extras import require
from multiguard.models.options import ModelOptions

_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_MULTI_LABEL = "multi_label_classification"
_UNIT = 1 / 255


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
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{spec} cannot be loaded: {str(error).splitlines()[0]}") from error
    _check_filled(spec, found["missing_keys"], found["mismatched_keys"])
    return model


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
    return [names[index] for index in range(len(names))]


def _normalisation(place: Path, spec: str) -> tuple[list[float] | None, list[float] | None]:
    """Mean and deviation for pixels in [0, 1], from the folder's image processor."""
    config = _read_json(place / _PREPROCESSOR, spec)
    rescaled = config.get("do_rescale", True)
    if not rescaled or abs(config.get("rescale_factor", _UNIT) - _UNIT) > 1e-9:
        raise ModelError(
            f"{spec}: its image processor does not scale to [0, 1], so a radius would not be in pixels; "
            "wrap the model in a callable that does its own scaling."
        )
    if not config.get("do_normalize", True):
        return None, None
    return config["image_mean"], config["image_std"]


def _read_json(path: Path, spec: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{spec}: {path.name} cannot be read: {error}") from error
    return found


def _weights_hash(place: Path) -> str:
    """The hash of all that is read: the tensors, and what says how they are used."""
    return files_hash([place / _CONFIG, place / _PREPROCESSOR, *sorted(place.glob("*.safetensors"))])
