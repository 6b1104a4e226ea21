"""`hf:FOLDER`: a Hugging Face image classifier saved in a local folder, whose files anyone may have written."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.modules import module as torch_module

from multiguard.errors import ModelError
from multiguard.io.files import files_checksum, read_regular
from multiguard.io.records import decode_json
from multiguard.models.classifier import Classifier, ModelOptions
from multiguard.models.image_processor import PREPROCESSOR, config_labels, read_processor
from multiguard.models.spec import HF_CONFIG, import_library, summary

_INDEX = "model.safetensors.index.json"
_MULTI_LABEL = "multi_label_classification"
_SAFE = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
_MAX_JSON = 1 << 23  # bytes
# Image classifiers of transformers that take pixel values and need nothing but the config and the tensors.
MODEL_TYPES = frozenset(
    (
        *("beit", "bit", "clip", "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinov2"),
        *("dinov2_with_registers", "donut-swin", "efficientnet", "focalnet", "hgnet_v2", "hiera", "ijepa", "levit"),
        *("metaclip_2", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "poolformer", "pp_lcnet", "pvt"),
        *("pvt_v2", "regnet", "resnet", "segformer", "siglip", "swiftformer", "swin", "swinv2", "textnet"),
        *("vit", "vit_msn"),
    )
)
# Entries that would run foreign code, or load tensors that the hash does not cover.
_CODE = ("auto_map", "custom_pipelines", "quantization_config", "transformers_weights", "base_model_name_or_path")
_ATTENTION = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_SAFE_ATTENTION = (None, "eager", "sdpa")
_MAX_NUMBER = 1 << 20  # above every real one: the largest vocabulary of text has 901,629 entries
_MAX_BUFFERS = 1 << 26  # numbers that are computed and not stored, such as positions
_SLACK = 2  # tensors may be registered twice while a network is built
_MORE_TENSORS = 1000


def load_hf(folder: str, options: ModelOptions) -> Classifier:
    """The multi-label classifier in a local folder, in float32, every tensor from its safetensors; no code is run."""
    path, spec = Path(folder), f"hf:{folder}"
    options.refuse_weights(spec)
    if options.output not in (None, "logits"):
        raise ModelError(f"{spec} returns logits; leave out output={options.output!r}.")
    config = _read_json(path / HF_CONFIG, spec)
    _check_config(config, spec)
    _refuse_other_files(path, spec)
    if (kind := config.get("problem_type")) != _MULTI_LABEL:
        raise ModelError(f"{spec}: its config.json has problem_type {kind!r}, not {_MULTI_LABEL!r}.")
    content: dict[str, Any] = {"do_normalize": False, "do_resize": False}
    if (path / PREPROCESSOR).exists():
        content = _read_json(path / PREPROCESSOR, spec)
    elif None in (options.mean, options.std):
        raise ModelError(
            f"{spec} has no {PREPROCESSOR}, which says how its images are normalised; copy it from the model's source, "
            "or give mean and std (--set mean=0.5 --set std=0.5) and the size (--size, image_size=)."
        )
    own = read_processor(content, config, spec)
    digest = hf_checksum(folder)
    model = _read_model(path, config, spec)
    labels = config_labels(model.config.id2label, model.config.label2id, spec)
    options.check_count(len(labels), spec)
    return options.fill(labels=labels, output="logits", **own).make_classifier(model, spec, digest)


def hf_checksum(folder: str) -> str:
    """The hash of all that is read of a folder: the tensors, and the files that determine how they are used."""
    path = Path(folder)
    names = [name for name in (HF_CONFIG, PREPROCESSOR) if name == HF_CONFIG or (path / name).exists()]
    try:
        return files_checksum([*(path / name for name in names), *sorted(path.glob("*.safetensors"))])
    except OSError as error:
        raise ModelError(f"hf:{folder}: {error.filename} cannot be read: {error.strerror}") from error


def _read_model(path: Path, config: dict[str, Any], spec: str) -> Any:
    """The network with the folder's tensors; it is built without memory first, and is no larger than what is stored."""
    transformers = import_library("transformers", "hf")
    maker = transformers.AutoModelForImageClassification
    option = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    try:
        with torch.device("meta"), size_limit(*_stored_size(path), spec):
            parsed = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(config)
            parsed = maker.from_config(parsed, trust_remote_code=False, **{option: torch.float32}).config
        more = {option: torch.float32, "output_loading_info": True}
        model, info = maker.from_pretrained(path, config=parsed, **_SAFE, **more)
    except ModelError:
        raise
    except Exception as error:  # a config that fits no model may raise anything
        raise ModelError(f"{spec} cannot be loaded: {summary(error)}") from error
    if wrong := sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"]))):  # a checkpoint without its head
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


def _read_json(path: Path, spec: str) -> dict[str, Any]:
    try:
        return decode_json(read_regular(path, _MAX_JSON), dict[str, Any])
    except (OSError, ValueError) as error:
        raise ModelError(f"{spec}: {path.name} cannot be read as a JSON object: {error}") from error


def _check_config(config: dict[str, Any], spec: str) -> None:
    """Raises `ModelError` where the config asks for code, for files elsewhere or for impossible sizes."""
    for key, value in _entries(config):
        if (key in _CODE and value) or (key in _ATTENTION and value not in _SAFE_ATTENTION):
            raise ModelError(
                f"{spec}: its config.json has {key} = {_short(value)}, which may run foreign code; "
                "save the model without it, or load it in your own function, module:function."
            )
        numbers = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int | float)]
        if not sum(map(abs, numbers)) <= _MAX_NUMBER:  # depths, widths and sizes; a list counts as its sum; no NaN
            limit = f"at most {_MAX_NUMBER:,} is supported"
            raise ModelError(f"{spec}: its config.json has {key} = {_short(value)}; {limit}.")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        own = "load it in your own function, module:function"
        raise ModelError(f"{spec}: its config.json has model_type {_short(kind)}, which is not supported; {own}.")


@contextmanager
def size_limit(numbers: int, tensors: int, spec: str) -> Iterator[None]:
    """Stops the construction of a network as soon as it has far more parameters than are stored.

    It must be built on torch's meta device, where a tensor takes no memory.
    """
    seen: dict[int, Tensor] = {}  # keeps the tensors, so that no two have one id
    totals = {"parameters": 0, "buffers": 0}
    limits = {"parameters": _SLACK * numbers, "buffers": _MAX_BUFFERS}

    def count(kind: str, tensor: Tensor | None) -> None:
        if tensor is None or id(tensor) in seen:
            return
        seen[id(tensor)] = tensor
        totals[kind] += tensor.numel()
        if totals[kind] > limits[kind] or len(seen) > _SLACK * tensors + _MORE_TENSORS:
            stored = f"{tensors:,} tensors of {numbers:,} numbers in all"
            raise ModelError(f"{spec}: its config.json asks for a larger network than its files hold ({stored}).")

    hooks = [
        torch_module.register_module_parameter_registration_hook(lambda *given: count("parameters", given[2])),
        torch_module.register_module_buffer_registration_hook(lambda *given: count("buffers", given[2])),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _entries(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every entry of a config, however deep, with its key."""
    pending: list[tuple[str, Any]] = list(config.items())
    while pending:
        key, value = pending.pop()
        yield key, value
        if isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += [(key, inner) for inner in value]


def _short(value: Any) -> str:
    return repr(str(value)[:60])
