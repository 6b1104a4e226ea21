"""Names of models, told apart without loading anything."""

import pytest

from multiguard.certify import Gaussian
from multiguard.errors import ModelError
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.model_folder import ModelCard, save_folder
from multiguard.models.spec import parse_spec


@pytest.fixture
def run(tmp_path):
    """A run folder with a model in it."""
    card = ModelCard("cnn:4", ("a", "b"), (16, 16), (0.5,) * 3, (0.5,) * 3, Gaussian(0.25))
    save_folder(tmp_path / "run" / "model", card, build_backbone("cnn:4", 2).network)
    return tmp_path / "run"


@pytest.mark.parametrize("inside", [".", "model", "model/model.safetensors"])
def test_model_in_run_folder(run, inside):
    """A model folder, its weights file and the run folder around it are one model."""
    assert load(str(run / inside)).label_names == ("a", "b")
    assert parse_spec(str(run / inside)).kind == "folder"


def test_suffixes(tmp_path):
    """Files and folders are recognised without a prefix."""
    (tmp_path / "config.json").write_text("{}")
    assert parse_spec(str(tmp_path)).kind == "hf"
    assert parse_spec(str(tmp_path / "model.safetensors")).kind == "hf"
    assert parse_spec("models/tagger.ONNX").kind == "onnx"
    assert [parse_spec(name).kind for name in ("my.py:net", "a/my.py:net", "pkg.mod:net")] == ["code"] * 3


def test_folder_without_model(tmp_path):
    """A folder without a model says what is missing."""
    with pytest.raises(ModelError, match=r"model\.json: no such file; expected a model folder"):
        load(str(tmp_path))
