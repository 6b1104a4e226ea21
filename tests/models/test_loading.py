"""Names of models, told apart without loading anything, and options that no loader may ignore."""

import pytest
from small_models import LABELS
from toy_models import a_classifier

from multiguard.certify import Gaussian
from multiguard.errors import ModelError
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.card import ModelCard
from multiguard.models.model_folder import save_folder
from multiguard.models.spec import parse_spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module_here:f", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("resnet18", "unknown model"),
        (":x", "unknown model ':x'"),
        ("", "unknown model"),
        ("no_such_file.py:net", "is no such file"),
        ("weights.pth", "no such file"),
        ("gone.onnx", "no such file"),
    ],
)
def test_unknown_spec(spec, message):
    """A spec that names no model is refused with what was expected."""
    with pytest.raises(ModelError, match=message):
        load(spec, labels=LABELS, output="logits")


OPTIONS = {
    "labels": LABELS,
    "weights": "x.pth",
    "output": "logits",
    "mean": [0.5] * 3,
    "std": [0.5] * 3,
    "image_size": (8, 8),
    "name": "mine",
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["classifier", "function", "folder"])
def test_ignored_options(tmp_path, kind, option):
    """No option is silently ignored."""
    if kind == "folder":
        card = ModelCard("cnn:4", tuple(LABELS), (16, 16), (0.5,) * 3, (0.5,) * 3, Gaussian(0.25))
        save_folder(tmp_path, card, build_backbone("cnn:4", 4).network)
    spec = {"classifier": a_classifier(), "function": "toy_models:a_classifier", "folder": str(tmp_path)}[kind]
    load(spec)
    with pytest.raises(ModelError, match=f"leave out {option}"):
        load(spec, **{option: OPTIONS[option]})


def test_repeated_label():
    """Two scores of one name raise an error before anything is voted on."""
    with pytest.raises(ModelError, match="the label 'cat' is named twice"):
        load(lambda rows: rows, labels=["cat", "dog", "cat"])


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
