"""The config of a Hugging Face folder that anyone may have written: what it may ask for, and what it may not."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.modules import module as torch_module

from multiguard.errors import ModelError
from multiguard.models.weight_files import import_library

# Image classifiers of transformers that take pixel values and need nothing but the config and the tensors.
MODEL_TYPES = frozenset(
    (
        *("beit", "bit", "clip", "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinov2"),
        *("dinov2_with_registers", "donut-swin", "efficientnet", "focalnet", "hgnet_v2", "hiera", "ijepa", "levit"),
        *("metaclip_2", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "poolformer", "pp_lcnet", "pvt"),
        *("pvt_v2", "regnet", "resnet", "segformer", "siglip", "swiftformer", "swin", "swinv2", "textnet"),
        *("timm_wrapper", "vit", "vit_msn"),
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


def check_config(config: dict[str, Any], spec: str) -> None:
    """Raises `ModelError` where the config asks for code, for files elsewhere or for impossible sizes."""
    for key, value in _entries(config):
        _refuse_code(key, value, spec)
        _refuse_large(key, value, spec)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        own = "load it in your own function, module:function"
        raise ModelError(f"{spec}: its config.json has model_type {_short(kind)}, which is not supported; {own}.")
    if kind == "timm_wrapper":
        _check_timm(config, spec)


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


def _refuse_code(key: str, value: Any, spec: str) -> None:
    if (key in _CODE and value) or (key in _ATTENTION and value not in _SAFE_ATTENTION):
        raise ModelError(
            f"{spec}: its config.json has {key} = {_short(value)}, which may run foreign code; "
            "save the model without it, or load it in your own function, module:function."
        )


def _refuse_large(key: str, value: Any, spec: str) -> None:
    """Depths, widths and sizes are refused before anything is built from them; a list counts as its sum."""
    values = value if isinstance(value, list) else [value]
    total = sum(abs(number) for number in values if isinstance(number, int | float))
    if not total <= _MAX_NUMBER:  # nor NaN
        raise ModelError(f"{spec}: its config.json has {key} = {_short(value)}; at most {_MAX_NUMBER:,} is supported.")


def _check_timm(config: dict[str, Any], spec: str) -> None:
    """A network of timm by its plain name: options could name files, and other names reach out of the folder."""
    name = config.get("architecture")
    plain = isinstance(name, str) and re.fullmatch(r"\w+(\.\w+)?", name, re.ASCII)
    if not plain or not import_library("timm", "timm").is_model(name):
        raise ModelError(f"{spec}: its config.json has architecture {_short(name)}, which is not one of timm's own.")
    if config.get("model_args"):
        what = _short(config["model_args"])
        raise ModelError(f"{spec}: its config.json has model_args {what}, which may read other files; save without.")


def _short(value: Any) -> str:
    return repr(str(value)[:60])
