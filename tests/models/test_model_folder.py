"""Model folders: what is saved is what is loaded, and a damaged folder is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from multiguard.certify import Gaussian, Uniform
from multiguard.errors import ModelError
from multiguard.models import model_folder
from multiguard.models.backbone import build_backbone, check_backbone
from multiguard.models.card import ModelCard, read_card
from multiguard.models.classifier import Classifier
from multiguard.models.model_folder import load_backbone, load_folder, save_folder


def card(**changes):
    basics = {
        "architecture": "cnn:4",
        "label_names": ("Käfer", "dog", "日本"),
        "image_size": (16, 16),
        "mean": (0.5, 0.4, 0.3),
        "std": (0.2, 0.2, 0.2),
        "noise": Gaussian(0.25),
        "history": ({"epoch": 1, "map_noisy": 0.5},),
    }
    return ModelCard(**{**basics, **changes})


@pytest.fixture
def network():
    torch.manual_seed(1)
    return build_backbone("cnn:4", 3).network.eval()


def test_saved_and_loaded(tmp_path, network):
    """What is saved is what is loaded."""
    saved = save_folder(tmp_path, card(), network)
    loaded = load_folder(tmp_path)
    images = torch.rand(2, 3, 16, 16)
    same = Classifier(network, saved.label_names, output="logits", mean=saved.mean, std=saved.std, name="x")
    torch.testing.assert_close(loaded(images), same(images), atol=0, rtol=0)
    assert loaded.label_names == ("Käfer", "dog", "日本")
    assert loaded.image_size == (16, 16)
    assert loaded.weights_hash == saved.weights_sha256
    assert not loaded.training
    assert read_card(tmp_path) == saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("load", [load_folder, load_backbone])
def test_card_read_once(tmp_path, network, monkeypatch, load):
    """The card is read once, so that it cannot change in between."""
    save_folder(tmp_path, card(), network)
    reads: list[str] = []
    monkeypatch.setattr(model_folder, "read_card", lambda path: reads.append(path) or read_card(path))
    load(tmp_path)
    assert reads == [tmp_path]


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, None),
        ({"recipe": {"noise": "band:4/16", "epochs": 3}}, "band:4/16"),
        ({"recipe": {"noise": "none", "epochs": 3}}, "none"),
        ({"recipe": {"noise": "gaussian:0.5", "epochs": 0}}, None),
        ({"recipe": {"noise": "gaussian:0.12", "sigma_max": 2.0, "epochs": 3}}, "gaussian:0.12 to 2"),
    ],
)
def test_trained_noise(tmp_path, network, training, expected):
    """The noise of the training images is read from the card."""
    save_folder(tmp_path, card(training=training), network)
    assert load_folder(tmp_path).trained_noise == expected


@pytest.mark.parametrize(
    ("noise", "message"),
    [('"dice"', "unknown noise"), ("0.5", "noise must be")],
)
def test_card_of_other_noise(tmp_path, network, noise, message):
    """A card whose noise is none raises."""
    save_folder(tmp_path, card(), network)
    stored = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**stored, "noise": json.loads(noise)}))
    with pytest.raises(ModelError, match=message):
        load_folder(tmp_path)


def test_range_of_noises():
    """A network that was trained for a range of sigma is for all of them, and for no other noise."""
    ranged = card(training={"recipe": {"noise": "gaussian:0.12", "sigma_max": 2.0, "epochs": 3}})
    assert [ranged.is_for(Gaussian(sigma)) for sigma in (0.11, 0.12, 0.25, 2, 2.1)] == [False, True, True, True, False]
    assert not ranged.is_for(Uniform(0.5))
    assert [card().is_for(Gaussian(sigma)) for sigma in (0.25, 0.5)] == [True, False]
    assert card(noise=None).is_for(Gaussian(1))


def test_changed_weights(tmp_path, network):
    """Weights whose hash is not that of the card are refused."""
    save_folder(tmp_path, card(), network)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["network.head.bias"] += 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"its sha256 is not the one in model\.json"):
        load_folder(tmp_path)


def test_card_of_other_architecture(tmp_path, network):
    """A card of another architecture is refused."""
    save_folder(tmp_path, card(architecture="cnn:8"), network)
    with pytest.raises(ModelError, match="do not fit the card's architecture"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as a model card"),
        ("[]", "not readable as a model card .expected `object`, got `array`"),
        ('{"format": 9}', "not a model card of format 4"),
        ('{"format": 4, "noise": null}', "not readable as a model card .object missing required field"),
        ('{"format": 4, "label": null}', "not readable as a model card"),
        (
            '{"format": 4, "architecture": "cnn:4", "label_names": ["a"], "image_size": [8, 8], "mean": [0], '
            '"std": [1], "noise": null, "training": {"recipe": {"sigma_max": "2"}}}',
            "sigma_max is not a number",
        ),
    ],
)
def test_foreign_card(tmp_path, text, message):
    """A card that is damaged or of another format is refused."""
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        load_folder(tmp_path)


def test_network_of_fixed_size(tmp_path):
    """A network for one size is built for the size of the card."""
    built = build_backbone("timm:test_vit3", 3, size=64)
    check_backbone(built, 64, 3)
    save_folder(tmp_path, card(architecture="timm:test_vit3", image_size=(64, 64)), built.network)
    with pytest.raises(ModelError, match=r"test_vit3 takes no images of 96x96 \(Input height \(96\).*; try 64"):
        check_backbone(load_backbone(tmp_path), 96, 3)
    assert load_folder(tmp_path)(torch.zeros(1, 3, 64, 64)).shape == (1, 3)
    check_backbone(build_backbone("timm:resnet18", 3, size=64), 64, 3)


def test_dropout_of_loaded_backbone(tmp_path, network):
    """A network from a folder gets the dropout of the new training."""
    save_folder(tmp_path, card(), network)
    assert load_backbone(tmp_path, dropout=0.6).network.dropout.p == 0.6
    assert load_backbone(tmp_path).network.dropout.p == 0
