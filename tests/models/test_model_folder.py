import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from multiguard.errors import ModelError
from multiguard.models import folder
from multiguard.models.backbone import build_backbone, require_size
from multiguard.models.classifier import Classifier
from multiguard.models.denoiser import FFDNet
from multiguard.models.folder import ModelCard, load_backbone, load_folder, read_card, save_folder
from multiguard.models.weights import read_weights


def card(**changes):
    basics = {
        "architecture": "cnn:4",
        "label_names": ("Käfer", "dog", "日本"),
        "image_size": (16, 16),
        "mean": (0.5, 0.4, 0.3),
        "std": (0.2, 0.2, 0.2),
        "sigma": 0.25,
        "history": ({"epoch": 1, "map_noisy": 0.5},),
    }
    return ModelCard(**{**basics, **changes})


@pytest.fixture
def network():
    torch.manual_seed(1)
    return build_backbone("cnn:4", 3).network.eval()


def test_what_is_saved_is_what_is_loaded(tmp_path, network):
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
def test_the_card_is_read_once_so_that_it_cannot_change_between(tmp_path, network, monkeypatch, load):
    save_folder(tmp_path, card(), network)
    reads: list[str] = []
    monkeypatch.setattr(folder, "read_card", lambda path: reads.append(path) or read_card(path))
    load(tmp_path)
    assert reads == [tmp_path]


def test_a_denoiser_is_saved_and_loaded_in_front(tmp_path, network):
    denoiser = FFDNet().eval()
    save_folder(tmp_path, card(), network, denoiser)
    images = torch.rand(1, 3, 16, 16)
    inner = Classifier(network, "abc", output="logits", mean=card().mean, std=card().std, name="x")
    with torch.no_grad():
        expected = inner(denoiser(images, 0.25).clamp(0, 1))
    torch.testing.assert_close(load_folder(tmp_path)(images), expected)
    torch.testing.assert_close(load_backbone(tmp_path).network.eval()(images), network(images))


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, None),
        ({"recipe": {"sigma": 0.5, "epochs": 3}}, 0.5),
        ({"recipe": {"sigma": 0.0, "epochs": 3}}, 0.0),
        ({"recipe": {"sigma": 0.5, "epochs": 0}}, None),
    ],
)
@pytest.mark.parametrize("denoised", [False, True])
def test_the_noise_of_the_training_images_is_told_from_the_card(tmp_path, network, training, expected, denoised):
    save_folder(tmp_path, card(training=training), network, FFDNet() if denoised else None)
    assert load_folder(tmp_path).trained_sigma == expected


def test_weights_that_are_not_the_cards_are_refused(tmp_path, network):
    save_folder(tmp_path, card(), network)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["network.head.bias"] += 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"its sha256 is not the one in model\.json"):
        load_folder(tmp_path)


def test_a_card_for_another_architecture_is_refused(tmp_path, network):
    save_folder(tmp_path, card(architecture="cnn:8"), network)
    with pytest.raises(ModelError, match="do not fit the card's architecture"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "not readable as JSON"),
        ('{"format": 9}', "not a model card of format 1"),
        ('{"format": 1, "sigma": 0.5}', "not a whole model card"),
    ],
)
def test_a_foreign_card_is_refused(tmp_path, text, message):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        load_folder(tmp_path)


def test_an_empty_folder_says_what_was_expected(tmp_path):
    with pytest.raises(ModelError, match="expected a model folder"):
        load_folder(tmp_path)


def test_the_card_is_plain_json_for_people(tmp_path, network):
    save_folder(tmp_path, card(), network)
    text = (tmp_path / "model.json").read_text(encoding="utf-8")
    assert "日本" in text
    assert json.loads(text)["sigma"] == 0.25


class Payload:
    def __reduce__(self):
        return print, ("run",)


def test_a_weights_file_that_would_run_code_is_refused(tmp_path):
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ModelError, match=r"evil\.pth: not readable"):
        read_weights(tmp_path / "evil.pth")
    torch.save({"a": 3}, tmp_path / "number.pth")
    with pytest.raises(ModelError, match="something else than named tensors"):
        read_weights(tmp_path / "number.pth")
    torch.save({"state_dict": {"module.a": torch.ones(1)}}, tmp_path / "wrapped.pth")
    assert list(read_weights(tmp_path / "wrapped.pth")) == ["a"]


def test_a_head_of_another_shape_is_replaced_and_said(tmp_path):
    torch.manual_seed(0)
    source = build_backbone("cnn:4", 7).network
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    built = build_backbone("cnn:4", 3, str(tmp_path / "w.safetensors"))
    assert built.fresh == ("head.weight", "head.bias")
    torch.testing.assert_close(built.network.stages[0].weight, source.stages[0].weight)
    assert build_backbone("cnn:4", 7, str(tmp_path / "w.safetensors")).fresh == ()


def test_a_body_that_does_not_match_is_refused(tmp_path):
    save_file(build_backbone("cnn:8", 3).network.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match=r"'stages.0.weight' has shape \(8, 3, 5, 5\) where \(4, 3, 5, 5\)"):
        build_backbone("cnn:4", 3, str(tmp_path / "w.safetensors"))
    partial = build_backbone("cnn:4", 3).network.state_dict()
    del partial["stages.3.weight"]
    save_file(partial, tmp_path / "p.safetensors")
    with pytest.raises(ModelError, match=r"no tensor 'stages\.3\.weight'"):
        build_backbone("cnn:4", 3, str(tmp_path / "p.safetensors"))


def test_unknown_architectures_name_what_is_known():
    with pytest.raises(ModelError, match="expected cnn, cnn:WIDTH or timm:NAME"):
        build_backbone("resnet50", 3)
    with pytest.raises(ModelError, match="did you mean 'resnet50'"):
        build_backbone("timm:resnet5O", 3)
    with pytest.raises(ModelError, match="whole number"):
        build_backbone("cnn:wide", 3)
    with pytest.raises(ModelError, match="whole number above 0"):
        build_backbone("cnn:0", 3)


def test_a_network_made_for_one_size_is_built_for_the_size_asked(tmp_path):
    built = build_backbone("timm:test_vit3", 3, size=64)
    require_size(built, 64)
    save_folder(tmp_path, card(architecture="timm:test_vit3", image_size=(64, 64)), built.network)
    with pytest.raises(ModelError, match=r"test_vit3 takes no images of 96x96 \(Input height \(96\).*; try 64"):
        require_size(load_backbone(tmp_path), 96)
    assert load_folder(tmp_path)(torch.zeros(1, 3, 64, 64)).shape == (1, 3)
    require_size(build_backbone("timm:resnet18", 3, size=64), 64)


def test_dropout_is_given_to_a_network_from_a_folder(tmp_path, network):
    save_folder(tmp_path, card(), network)
    assert load_backbone(tmp_path, dropout=0.6).network.dropout.p == 0.6
    assert load_backbone(tmp_path).network.dropout.p == 0


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_an_empty_weights_file_is_named(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ModelError, match=f"{name}: not readable as safetensors"):
        read_weights(tmp_path / name)


def test_timm_takes_its_weights_from_a_file_and_its_normalisation_from_timm(lite0_weights):
    built = build_backbone("timm:tf_efficientnet_lite0", 80, str(lite0_weights))
    assert built.fresh == ("classifier.weight", "classifier.bias")
    assert built.mean == built.std == (0.5, 0.5, 0.5)
    assert built.image_size == 224
    given = load_file(lite0_weights)
    torch.testing.assert_close(built.network.state_dict()["conv_stem.weight"], given["conv_stem.weight"])
    with pytest.raises(ModelError, match="such tensors"):
        build_backbone("timm:resnet18", 80, str(lite0_weights))
