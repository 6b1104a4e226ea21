"""Networks by architecture, with weights from a file, and timm models as classifiers."""

import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_models import LABELS
from torch import nn

from multiguard.errors import ModelError
from multiguard.models import load, weight_files
from multiguard.models.backbone import build_backbone, input_size
from multiguard.smooth import Smoother

TIMM = "test_efficientnet"  # small, and its mean is not its deviation


def timm_model(labels: int = 4) -> nn.Module:
    timm = pytest.importorskip("timm")
    torch.manual_seed(2)
    return timm.create_model(TIMM, num_classes=labels).eval()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm(tmp_path, suffix):
    """A timm model has timm's normalisation and the hash of its weights file."""
    model, file = timm_model(), tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": model.state_dict()}, file)
    else:
        save_file(model.state_dict(), file)
    classifier = load(f"timm:{TIMM}", labels=LABELS, weights=file)
    assert classifier.output == "logits"
    assert classifier.weights_hash == hashlib.sha256(file.read_bytes()).hexdigest()
    mean, std = (torch.tensor(model.pretrained_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    images = torch.rand(2, 3, 48, 48)
    with torch.no_grad():
        assert torch.equal(classifier.eval()(images), model((images - mean) / std))
    smoother = Smoother(classifier, sigma=0.5, device="cpu")
    image = np.zeros((3, 48, 48), dtype=np.uint8)
    assert smoother.votes(image, 3, noise_seed=0, image_id="a").shape == (3, 4)


def test_replaced_weights(tmp_path, monkeypatch):
    """A file that is replaced while it is loaded changes neither the weights nor their hash."""
    file, expected = tmp_path / "w.safetensors", timm_model().state_dict()
    save_file(expected, file)
    digest, read = hashlib.sha256(file.read_bytes()).hexdigest(), weight_files.read_hashed

    def late(path, most):
        found = read(path, most)
        file.write_bytes(b"")
        return found

    monkeypatch.setattr(weight_files, "read_hashed", late)
    classifier = load(f"timm:{TIMM}", labels=LABELS, weights=file)
    assert classifier.weights_hash == digest
    assert torch.equal(classifier.network.state_dict()["classifier.bias"], expected["classifier.bias"])


def test_timm_weights_of_wrong_shape(tmp_path):
    """Weights with another head, or without one, are refused."""
    save_file(timm_model(labels=5).state_dict(), tmp_path / "five.safetensors")
    with pytest.raises(ModelError, match=r"five.safetensors does not fit.*'classifier.weight'"):
        load(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "five.safetensors")
    partial = {k: v for k, v in timm_model().state_dict().items() if "classifier" not in k}
    save_file(partial, tmp_path / "headless.safetensors")
    with pytest.raises(
        ModelError, match=r"headless.safetensors does not fit.*'classifier.weight' has another shape or is missing"
    ):
        load(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "headless.safetensors")


def test_missing_timm_options(tmp_path):
    """A timm model needs a known name, labels and weights."""
    with pytest.raises(ModelError, match="weights=FILE"):
        load(f"timm:{TIMM}", labels=LABELS)
    with pytest.raises(ModelError, match="labels="):
        load(f"timm:{TIMM}", weights=tmp_path / "x.pth")
    with pytest.raises(ModelError, match=r"unknown timm model.*resnet18"):
        load("timm:esnet18", labels=LABELS, weights=tmp_path / "x.pth")
    with pytest.raises(ModelError, match="no such weights file"):
        load(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "x.pth")


def test_replaced_head(tmp_path):
    """A head of another shape is replaced and reported."""
    torch.manual_seed(0)
    source = build_backbone("cnn:4", 7).network
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    built = build_backbone("cnn:4", 3, str(tmp_path / "w.safetensors"))
    assert built.fresh == ("head.weight", "head.bias")
    torch.testing.assert_close(built.network.stages[0].weight, source.stages[0].weight)
    assert build_backbone("cnn:4", 7, str(tmp_path / "w.safetensors")).fresh == ()


def test_wrong_body(tmp_path):
    """A body that does not match is refused."""
    save_file(build_backbone("cnn:8", 3).network.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(
        ModelError, match=r"'stages.0.weight' has shape \(8, 3, 5, 5\), and the network needs \(4, 3, 5, 5\)"
    ):
        build_backbone("cnn:4", 3, str(tmp_path / "w.safetensors"))
    partial = build_backbone("cnn:4", 3).network.state_dict()
    del partial["stages.3.weight"]
    save_file(partial, tmp_path / "p.safetensors")
    with pytest.raises(ModelError, match=r"'stages\.3\.weight' has shape none, and the network needs \("):
        build_backbone("cnn:4", 3, str(tmp_path / "p.safetensors"))


def test_lite(lite0_weights):
    """EfficientNet-Lite takes timm's weights; behind a U-Net, the denoiser is fresh as well as the head."""
    built = build_backbone("lite:0", 80, str(lite0_weights), dropout=0.25)
    assert built.fresh == ("classifier.weight", "classifier.bias")
    assert built.mean == built.std == (0.5, 0.5, 0.5)
    assert built.image_size == input_size("lite:0") == input_size("unet:8+lite:0") == 224
    assert input_size("pool:2+unet:8+lite:0@64") == 448
    assert built.network.dropout.p == 0.25
    behind = build_backbone("unet:8+lite:0", 80, str(lite0_weights))
    assert behind.fresh == ("denoiser", "network.classifier.weight", "network.classifier.bias")
    torch.testing.assert_close(behind.network.network.conv_stem.weight, built.network.conv_stem.weight)


LITE = ("lite:5", "lite", "unet:8", "unet:0+lite:0", "unet:8+lite:0 ", "unet:8+cnn", "pool:2+lite:0", "lite:2@16")


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet50", None, "expected cnn, cnn:WIDTH, lite:0"),
        ("timm:resnet5O", None, "did you mean 'resnet50'"),
        ("cnn:wide", None, "integer from 1"),
        ("cnn:0", None, "integer from 1 to 2048"),
        ("lite:0", "pretrained", "give a file"),
        *((name, None, "expected lite:0 to lite:4") for name in LITE),
    ],
)
def test_unknown_architecture(name, weights, message):
    """An unknown architecture raises an error with what is known; nothing is downloaded for a built-in one."""
    with pytest.raises(ModelError, match=message):
        build_backbone(name, 3, weights)


def test_no_network(monkeypatch):
    """Where the host of pretrained weights has no address, it is not asked again and again."""
    pytest.importorskip("timm")
    asked = []

    def unknown(*arguments, **_):
        asked.append(arguments[0])
        raise OSError("unknown host")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with pytest.raises(ModelError, match="give a weights file instead"):
        build_backbone("timm:resnet10t", 3, "pretrained")
    assert len(asked) == 1
