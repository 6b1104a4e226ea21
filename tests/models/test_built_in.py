"""The models in the package: each is whole, is what its card says, and gives the logits that were released."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from benchmarks.release import (
    REFERENCES,
    Curve,
    Measured,
    MeasuredLabel,
    card_text,
    reference_logits,
    write_graph,
)
from typer.testing import CliRunner

from multiguard.certify import Gaussian
from multiguard.cli.main import app
from multiguard.errors import ModelError
from multiguard.io.records import decode_json
from multiguard.models import load, spec
from multiguard.models.backbone import build_backbone
from multiguard.models.built_in import MEASURED_FILE, TEXT_FILE, model_card, read_measured
from multiguard.models.card import ModelCard, read_card
from multiguard.models.model_folder import load_folder, save_folder
from multiguard.smooth import Smoother

LARGEST = 12_000_000  # bytes of weights
RADII = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
MEASURED = Measured(
    *("hash", 1234567, "objects in photos", "Apache-2.0", 2, 0.5, 16, "some images", 500, 0.712),
    *(10, 3, 1000, 0.001, "betting", RADII),
    (Curve(0.5, 0.598, (0.80999, 0.71239, 0.58, 0, 0, 0)), Curve(1.0, 0.5, (0.79, 0.7, 0.68, 0.6, 0.5, 0))),
    *("joint", (MeasuredLabel("dog", 7, (1.0, 0.85714, 0.5, 0, 0, 0)),), {}),
)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A package with one small model, named tiny."""
    recipe = {"epochs": 3, "noise": "gaussian:0.5"}
    training = {"train": {"name": "a set", "images": 1000}, "weights": None, "recipe": recipe}
    card = ModelCard("cnn:4", ("cat", "dog"), (16, 16), (0.5,) * 3, (0.5,) * 3, Gaussian(0.5), training=training)
    card = save_folder(tmp_path / "tiny", card, build_backbone("cnn:4", 2).network.half())
    measured = json.dumps({name: getattr(MEASURED, name) for name in MEASURED.__dataclass_fields__}, default=vars)
    (tmp_path / "tiny" / MEASURED_FILE).write_text(measured)
    (tmp_path / "tiny" / TEXT_FILE).write_text(card_text("tiny", card, MEASURED))
    monkeypatch.setattr(spec, "BUILT_IN", tmp_path)
    return tmp_path / "tiny"


def test_name(tiny, tmp_path, monkeypatch):
    """The name loads the model in float32, and wins over a folder of the same name."""
    classifier = load("tiny")
    assert classifier.label_names == ("cat", "dog")
    assert {tensor.dtype for tensor in classifier.parameters()} == {torch.float32}
    (tmp_path / "elsewhere" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load("tiny").weights_hash == classifier.weights_hash == read_card(tiny).weights_sha256
    with pytest.raises(ModelError, match=r"model\.json: no such file"):
        load("./tiny")
    with pytest.raises(ModelError, match="or a built-in model: tiny"):
        load("tyni")
    with pytest.raises(ModelError, match="did you mean 'tiny'"):
        read_measured("tyni")


def test_list(tiny):
    """The list has a line per model with its certified recall at the best sigma, rounded down."""
    shown = CliRunner().invoke(app, ["models"], env={"COLUMNS": "120"}).stdout
    for part in (
        "tiny",
        "2 objects in photos",
        "16 x 16",
        "1.2 M",
        "71.2% at 0.5, 68.0% at 1, 50.0% at 2",
        "Apache-2.0",
    ):
        assert part in shown
    assert all(len(line) <= 120 for line in shown.splitlines())


def test_card(tiny):
    """The card has every measured number, certified ones rounded down, and the command prints it."""
    shown = CliRunner().invoke(app, ["models", "tiny"]).stdout
    assert shown.strip() == model_card("tiny").strip()
    for part in ("| 0.5 | 0.598 | 80.9% | 71.2% | 58.0% |", "0.5 to 0.5 on pixels", "random weights"):
        assert part in shown


@pytest.mark.parametrize("name", spec.built_in_names())
def test_released(name):
    """Every released model is small, loads, was measured with these weights, and gives the logits of its release."""
    folder = spec.BUILT_IN / name
    card, measured = read_card(folder), decode_json((folder / MEASURED_FILE).read_bytes(), Measured)
    assert (folder / "model.safetensors").stat().st_size <= LARGEST
    assert load(name).weights_hash == card.weights_sha256 == measured.weights_sha256
    assert card.noise.sigma == measured.sigma
    assert card.image_size == (measured.size, measured.size)
    assert card_text(name, card, measured) == model_card(name)
    assert (card.training["model_sha256"] is None) == (measured.before == {})
    expected = json.loads(REFERENCES.read_text())[name]
    assert reference_logits(folder) == pytest.approx(expected, abs=2e-3)
    images = np.random.default_rng(0).random((2, 3, *card.image_size), dtype=np.float32)
    assert np.allclose(load(name).scores(images), load_folder(folder).scores(images), atol=1e-4)
    texts = [(folder / file).read_text() for file in ("model.json", TEXT_FILE)]
    assert not any(path in text for path in ("/root", "/home", "/dev/", "/tmp") for text in texts)


def test_graph(tiny):
    """A graph takes its weights from the weights file, gives the scores of the network, and runs where torch may."""
    write_graph(tiny)
    classifier, images = load("tiny"), np.random.default_rng(0).random((3, 3, 16, 16), dtype=np.float32)
    assert (classifier.takes, classifier.label_names) == ("arrays", ("cat", "dog"))
    assert np.allclose(classifier.scores(images), load_folder(tiny).scores(images), atol=1e-5)
    assert Smoother(classifier, 0.5).classifier.takes == "arrays"
    assert Smoother(classifier, 0.5, precision="bfloat16").classifier.takes == "tensors"
    assert (tiny / "model.onnx").stat().st_size < (tiny / "model.safetensors").stat().st_size
    (tiny / "model.safetensors").write_bytes(bytes(100))
    with pytest.raises(ModelError, match=r"the sha256 of model\.safetensors is not the one"):
        load("tiny")


def test_loaded_first():
    """A built-in model loads, noise and all, where nothing else was imported before."""
    code = "import multiguard; print(multiguard.load('coco').trained_noise)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout == "gaussian:0.12 to 2\n", found.stderr
