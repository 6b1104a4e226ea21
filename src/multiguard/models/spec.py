"""The kinds of models that a name can stand for, distinguished by prefix, by suffix or by what a folder holds."""

import importlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from multiguard.errors import ModelError

Kind = Literal["folder", "network", "timm", "hf", "onnx", "yaml", "code"]
CARD_FILE, HF_CONFIG = "model.json", "config.json"  # what tells a model folder and a Hugging Face folder
DEFAULT_MODEL = "coco"  # what predicts where no model is named
BUILT_IN = Path(__file__).parent / "weights"  # a folder per model that the package contains
_PREFIXES: tuple[Kind, ...] = ("timm", "hf", "onnx")
_NETWORKS = ("cnn", "lite", "unet", "pool")  # built-in ones, to be trained
_INSIDE = "model"  # where a run folder keeps its model
_NEED_TORCHVISION = ("timm", "transformers")
_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".pt2", ".ts", ".torchscript")


@dataclass(frozen=True)
class ModelSpec:
    """What a name stands for."""

    kind: Kind
    target: str  # the folder, the file, timm's name, or module:function


def parse_spec(name: str) -> ModelSpec:
    """The model that a name stands for; nothing is loaded. A name that stands for none raises `ModelError`.

    The name of a built-in model stands for it, whatever folders there are; `./NAME` is a folder.

    >>> parse_spec("timm:resnet50")
    ModelSpec(kind='timm', target='resnet50')
    >>> parse_spec("onnx:tagger.onnx") == parse_spec("tagger.onnx")
    True
    >>> parse_spec("mymodel.py:net").kind
    'code'
    """
    path = Path(name)
    if name in built_in_names():
        return ModelSpec("folder", str(BUILT_IN / name))
    if os.path.isdir(name):  # noqa: PTH112 - False for a name too long for a file, where Path raises
        return _folder(path)
    prefix, _, rest = name.partition(":")
    if prefix in _NETWORKS:
        return ModelSpec("network", name)
    for kind in _PREFIXES:
        if prefix == kind and rest:
            return ModelSpec(kind, rest)
    if path.suffix.lower() == ".onnx":
        return ModelSpec("onnx", name)
    if path.suffix.lower() in (".yaml", ".yml"):
        return ModelSpec("yaml", name)
    if path.suffix.lower() in _WEIGHTS:
        return _weights_file(path)
    module, _, function = name.rpartition(":")
    if module and function and prefix not in _PREFIXES:
        return ModelSpec("code", name)
    raise ModelError(
        f"unknown model {name!r}: expected a model folder that exists, timm:NAME, hf:FOLDER, onnx:FILE, FILE.yaml, "
        f"module:function, file.py:function or a built-in model: {', '.join(built_in_names()) or 'there is none'}."
    )


def built_in_names() -> tuple[str, ...]:
    """The names of the models that the package contains, in alphabetical order."""
    return tuple(sorted(card.parent.name for card in BUILT_IN.glob(f"*/{CARD_FILE}")))


def _folder(path: Path) -> ModelSpec:
    """A model folder, the run folder around it, or a Hugging Face folder."""
    for folder in (path, path / _INSIDE):
        if (folder / CARD_FILE).is_file():
            return ModelSpec("folder", str(folder))
    if (path / HF_CONFIG).is_file():
        return ModelSpec("hf", str(path))
    return ModelSpec("folder", str(path))  # it says itself what it lacks


def _weights_file(path: Path) -> ModelSpec:
    """The folder around a weights file that says which network they are of; weights alone do not."""
    home = path.parent
    named = (os.path.isfile(home / name) for name in (CARD_FILE, HF_CONFIG))  # noqa: PTH113 - as above
    if path.suffix == ".safetensors" and any(named):
        return _folder(home)
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        raise ModelError(f"{path}: no such file; expected a model, or weights and the name of their network")
    if _is_program(path):
        how = f"torch.jit.load({str(path)!r})"
        if path.suffix == ".pt2":
            how = f"torch.export.load({str(path)!r}).module()"
        raise ModelError(
            f"{path} is a program that torch saved, and no program runs because a file is named; if you trust it, load "
            f"it in a function of your own: --model FILE.py:NAME, with def NAME(): return {how}"
        )
    raise ModelError(
        f"{path}: weights alone do not say which network they are of; name both, as in "
        f"--model timm:resnet50 --weights {path} --labels labels.txt"
    )


def _is_program(path: Path) -> bool:
    """Whether a file is of torch.export or TorchScript, not of weights."""
    try:
        with zipfile.ZipFile(path) as archive:
            return path.suffix == ".pt2" or any("/code/" in name for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return path.suffix in (".pt2", ".ts", ".torchscript")


def import_library(module: str, extra: str) -> Any:
    """The imported module; where it does not import, a `ModelError` that names the extra to install."""
    if module in _NEED_TORCHVISION:
        from multiguard.models.weight_files import declare_absent_operators

        declare_absent_operators()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModelError(f"this model needs {error.name}; pip install 'multiguard[{extra}]'.") from error
    except (ImportError, RuntimeError) as error:  # another library that it imports is broken
        raise ModelError(
            f"this model needs {module}, which is installed and does not import: {summary(error)}"
        ) from error


def summary(error: BaseException) -> str:
    """The beginning of another library's error message in one line, or the error's type where it has none."""
    return " ".join(str(error).split())[:200] or type(error).__name__
