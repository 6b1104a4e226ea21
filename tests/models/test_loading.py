"""Specs that name no model, and options that no loader may ignore."""

import pytest
from small_models import LABELS
from toy_models import a_classifier

from multiguard.certify import Gaussian
from multiguard.errors import ModelError
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.model_folder import ModelCard, save_folder


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("toy_models:missing", "unknown name in toy_models 'missing'"),
        ("no_such_module_here:f", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("toy_models:not_a_function", "is of type int"),
        ("toy_models:a_number", "not int"),
        ("resnet18", "unknown model"),
        ("timm:", "unknown model"),
        (":x", "unknown model ':x'"),
        ("x:", "unknown model"),
        (":", "unknown model"),
        ("", "unknown model"),
        ("no_such_file.py:net", "is no such file"),
        ("weights.pth", "weights alone do not say which network"),
        ("weights.safetensors", "weights alone do not say which network"),
        ("gone.onnx", "no such file"),
        ("torch:no_such_name", "unknown name in torch"),
        ("shutil:copyfile", "requires 2 arguments; expected a function of one batch"),
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
