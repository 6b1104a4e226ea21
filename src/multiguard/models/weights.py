"""Weights files: tensors by name, read without running anything that the file brings along."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from multiguard.errors import ModelError

_WRAPPINGS = ("state_dict", "model", "model_state_dict", "params")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Every tensor of a .safetensors or .pth file by name; a file that would run code is refused."""
    if not path.is_file():
        raise ModelError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{path}: not readable as safetensors, or as a plain torch file ({reason})") from error
    return _tensors(found, path)


def _tensors(found: Any, path: Path) -> dict[str, Tensor]:
    for key in _WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ModelError(f"{path}: holds something else than named tensors; save the model's state_dict()")
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}
