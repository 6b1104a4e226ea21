"""Weights files, read without running any code from them."""

import importlib.util
import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import read_hashed
from multiguard.models.spec import summary

_MOST = 1 << 36  # bytes of a weights file
_OPERATORS = ("nms", "qnms")  # of torchvision
_declared: list[torch.library.Library] = []  # torch forgets the operators of a library that is deleted
# What a pickle of plain weights names.
_REBUILT = {
    "torch._utils": ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"),
    "torch.storage": ("UntypedStorage", "TypedStorage"),
    "_codecs": ("encode",),
}
_PLAIN = {name for name in vars(torch) if name.endswith("Storage") or isinstance(getattr(torch, name), torch.dtype)}
_PLAIN |= {"Size", "device"}
_WRAPPERS = ("state_dict", "model", "model_state_dict", "params")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Every tensor of a .safetensors or .pth file by name; a file that would run code is refused and runs none."""
    return read_hashed_weights(path)[0]


def read_hashed_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """As `read_weights`, and the sha256 of the bytes that the tensors were made from: the file is read once."""
    if not path.is_file():
        raise ModelError(f"{path}: no such weights file")
    try:
        content, digest = read_hashed(path, _MOST)
        if path.suffix == ".safetensors":
            return load_safetensors(content), digest
        _check_pickles(content)
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        raise ModelError(f"{path}: not readable as safetensors or as a plain torch file ({summary(error)})") from error
    return _find_tensors(found, path), digest


def _check_pickles(content: bytes) -> None:
    """Raises, before any memory is allocated, for a file of torch whose tensors would be larger than the file."""
    file = io.BytesIO(content)
    if not zipfile.is_zipfile(file):  # the format before torch 1.6: three headers, then the tensors
        file.seek(0)
        for _ in range(4):
            _Rehearsal(file, len(content)).load()
        return
    with zipfile.ZipFile(file) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
        if total > len(content):  # torch never compresses tensors, but a bomb does
            raise ValueError(f"its parts would have {total:,} bytes, more than the file itself")
        for name in archive.namelist():
            if name.endswith("data.pkl"):
                _Rehearsal(io.BytesIO(archive.read(name)), len(content)).load()


class _Rehearsal(pickle.Unpickler):
    """Reads a pickle without its tensors: calls nothing, and counts the numbers that its storages ask for."""

    def __init__(self, file: io.BytesIO, most: int) -> None:
        super().__init__(file)
        self._most, self._storages = most, dict[str, int]()

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a class or function; one that plain weights do not need raises an error."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if name not in _REBUILT.get(module, ()) and not (module == "torch" and name in _PLAIN):
            raise ValueError(f"it calls {module}.{name}, which plain weights do not; save the model's state_dict()")
        return lambda *arguments: None

    def persistent_load(self, storage: Any) -> None:
        """Count the numbers of a storage."""
        _, _, key, _, numbers, *_ = storage
        self._storages[str(key)] = int(numbers)
        if sum(self._storages.values()) > self._most:
            raise ValueError(f"its tensors would have more numbers than the file has bytes ({self._most:,})")


def _find_tensors(content: Any, path: Path) -> dict[str, Tensor]:
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path}: contains something other than named tensors; save the model's state_dict()")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Fill every tensor of a network from these by name and shape; any difference raises `ModelError`."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise ModelError(f"{source}: the weights do not fit the network's architecture ({summary(error)})") from error


def declare_absent_operators() -> None:
    """Make a torchvision that was built for another torch importable; change nothing where it imports.

    Its operator `nms` is unknown to torch then, and its import fails. timm and transformers import torchvision for
    image transforms and never call its operators, so they are declared by name; calling one still fails.
    """
    if _declared or "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            return
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left behind
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name in _OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        _declared.append(library)
