"""Weights files: tensors by name, read without running anything that the file brings along."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from multiguard.errors import ModelError
from multiguard.models.extras import first_line

_WRAPPINGS = ("state_dict", "model", "model_state_dict", "params")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Every tensor of a .safetensors or .pth file by name; a file that would run code is refused, and runs none."""
    if not path.is_file():
        raise ModelError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        _refuse_swollen(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes its readers fail in any way there is
        raise ModelError(
            f"{path}: not readable as safetensors, or as a plain torch file ({first_line(error)})"
        ) from error
    return _tensors(found, path)


def _refuse_swollen(path: Path) -> None:
    """Raises where an archive holds more than its own bytes: torch stores tensors as they are, and a bomb does not."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        held = sum(entry.file_size for entry in archive.infolist())
    if held > path.stat().st_size:
        raise ValueError(f"its parts would be {held:,} bytes, more than the file itself")


def _tensors(found: Any, path: Path) -> dict[str, Tensor]:
    for key in _WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ModelError(f"{path}: holds something else than named tensors; save the model's state_dict()")
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}
