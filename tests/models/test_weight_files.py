"""Weights files that run no code, and missing libraries."""

import contextlib
import os
import pickle
import subprocess
import sys

import pytest
import torch
from small_models import Trap

from multiguard.errors import ModelError
from multiguard.models.spec import import_library
from multiguard.models.weight_files import read_weights


@pytest.mark.parametrize("save", [torch.save, lambda thing, file: file.write_bytes(pickle.dumps(thing))])
def test_code_in_weights(tmp_path, save):
    """A weights file that would run code is refused and runs none."""
    file, sprung = tmp_path / "weights.pth", tmp_path / "sprung"
    save({"state_dict": Trap(sprung)}, file)
    with pytest.raises(ModelError, match=r"weights\.pth: not readable"):
        read_weights(file)
    assert not sprung.exists()
    with contextlib.suppress(RuntimeError):
        torch.load(file, weights_only=False)
    assert sprung.exists(), "the trap itself must work"


class Call:
    """What a pickle calls with these arguments when it is read."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts[0], self.parts[1:]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("call", [Call(torch.Tensor, 1 << 31), Call(bytearray, 1 << 33)])
def test_large_calls(tmp_path, call, zipped):
    """A small file that asks for gigabytes is refused before they are allocated; plain weights are read."""
    torch.save({"x": call}, tmp_path / "bomb.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match=r"it calls .*, which plain weights do not"):
        read_weights(tmp_path / "bomb.pth")
    large = {"a": torch.zeros(6), "b": torch.nn.Parameter(torch.ones(2).half())}
    torch.save({"params": large, "epoch": 3}, tmp_path / "plain.pth", _use_new_zipfile_serialization=zipped)
    assert list(read_weights(tmp_path / "plain.pth")) == ["a", "b"]


def test_large_storage(tmp_path):
    """A storage of more numbers than the file has bytes is refused before it is allocated."""
    torch.save({"a": torch.zeros(7)}, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    content = (tmp_path / "a.pth").read_bytes().replace(b"K\x07", b"J\x00\x00\x00\x60")
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(ModelError, match="more numbers than the file has bytes"):
        read_weights(tmp_path / "a.pth")


def test_contents_of_torch_files(tmp_path):
    """A wrapped state dict is found, and anything but named tensors is refused."""
    torch.save({"a": 3}, tmp_path / "number.pth")
    with pytest.raises(ModelError, match="something other than named tensors"):
        read_weights(tmp_path / "number.pth")
    torch.save({"state_dict": {"module.a": torch.ones(1)}}, tmp_path / "wrapped.pth")
    assert list(read_weights(tmp_path / "wrapped.pth")) == ["a"]


def test_missing_library():
    """A missing library is named with its extra."""
    with pytest.raises(ModelError, match=r"pip install 'multiguard\[timm\]'"):
        import_library("no_such_library_here", "timm")


def test_broken_library(tmp_path, monkeypatch):
    """A library that fails to import is named with its own error, without advice to install it again."""
    (tmp_path / "built_for_another_torch.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"is installed and does not import: operator nms does not exist"):
        import_library("built_for_another_torch", "timm")


PROGRAM = """
from multiguard.models.spec import import_library
timm, transformers = import_library("timm", "timm"), import_library("transformers", "hf")
timm.create_model("resnet10t", num_classes=3)
transformers.ViTForImageClassification
"""


def test_libraries_beside_any_torchvision():
    """timm and transformers build networks in a fresh process, whatever torchvision is installed."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=variables, check=True)
