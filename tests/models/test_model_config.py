"""Models named by configs: a YAML file describes one without running code, and a record is read no less carefully."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file
from small_models import write_onnx

from multiguard.errors import InvalidInputError
from multiguard.io.config import to_tree
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.config import ModelConfig, recorded_model
from multiguard.models.loading import load_model, weights_checksum

LABELS = ("cat", "dog", "emu", "fox")
ONNX = "spec: m.onnx\nlabels: names.txt\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with an ONNX file, its and labels."""
    write_onnx(tmp_path / "m.onnx", "N")
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    monkeypatch.chdir("/")
    return tmp_path


def describe(home, text):
    """The config of a YAML file with this text."""
    (home / "m.yaml").write_text(text)
    return ModelConfig(str(home / "m.yaml"))


def test_described_model(home):
    """A YAML file is a complete model, from any working directory; its files are hashed."""
    config = describe(home, f"{ONNX}output: probabilities\nmean: [0.5]\nstd: [0.25]\nsize: 32\ndenoiser: built-in\n")
    assert to_tree(config.resolved())["labels"] == str(home / "names.txt")
    classifier = load_model(config)
    plain = load(f"onnx:{home / 'm.onnx'}", labels=LABELS, mean=[0.5], std=[0.25])
    assert (classifier.label_names, classifier.output, classifier.image_size) == (LABELS, "probabilities", (32, 32))
    assert classifier(torch.rand(2, 3, 32, 32)).shape == (2, 4)
    assert weights_checksum(config.resolved().spec) == plain.weights_hash
    assert classifier.name == f"denoiser+{plain.name}"
    with pytest.raises(InvalidInputError, match="takes images of 32x32; leave out the size 64"):
        load_model(config, size=64)


def test_described_weights(home):
    """A weights file needs the architecture as its spec."""
    network = build_backbone("cnn:2", 4).network
    save_file(network.state_dict(), home / "w.safetensors")
    classifier = load_model(ModelConfig("cnn:2", labels=home / "names.txt", weights=home / "w.safetensors"))
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(classifier.eval()(images), network.eval()((images - 0.5) / 0.5))
    assert classifier.weights_hash == weights_checksum("cnn:2", home / "w.safetensors")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec: own_module:build", "spec is 'own_module:build', which is not the plain name"),
        ("spec: m.py:build", "spec is 'm.py:build', which is not the plain name"),
        ("spec: m.yaml", "expected an ONNX file, timm:NAME or a Hugging Face folder"),
        ("spec: folder", "expected an ONNX file, timm:NAME or a Hugging Face folder"),
        ("spec: /etc/m.onnx", "not the plain name of a regular file"),
        ("spec: onnx:sub/m.onnx", "not the plain name of a regular file"),
        ("spec: ../m.onnx", "not the plain name of a regular file"),
        ("spec: link.onnx", "not the plain name of a regular file"),
        ("spec: linked", "not the plain name of a regular file"),
        ("spec: m.onnx\nlabels: pipe", "labels is 'pipe', which is not the plain name"),
        ("spec: m.onnx\nweights: folder", "weights is 'folder', which is not the plain name"),
        ("spec: timm:resnet10t\nweights: pretrained", "weights is 'pretrained', which is not the plain name"),
        ("spec: m.onnx\ndenoiser: ../d.safetensors", "denoiser is '../d.safetensors'; expected built-in"),
        ("spec: m.onnx\nmean: [1, 2]", "mean has 2 numbers"),
        ("spec: m.onnx\nlabel: names.txt", "unknown key 'label': did you mean 'labels'"),
        ("spec: !!python/object:os.system {}", "could not determine a constructor"),
        ("spec: &a m.onnx\nlabels: *a", "references .* are not read"),
        ("[spec]", "expected keys such as spec:"),
    ],
)
def test_refused_description(home, text, message):
    """A YAML file names no code, no network, and nothing but regular files of its own folder."""
    (home / "link.onnx").symlink_to(home / "m.onnx")
    (home / "folder").mkdir()
    (home / "linked").symlink_to(home / "folder")
    os.mkfifo(home / "pipe")
    with pytest.raises(InvalidInputError, match=message):
        describe(home, text).resolved()


def test_description_with_options(home):
    """A YAML file takes no further options, and must be a file."""
    with pytest.raises(InvalidInputError, match="says all of its model"):
        describe(home, ONNX).replace(output="logits").resolved()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        ModelConfig(str(home / "other.yaml")).resolved()


def test_recorded_model(home):
    """A record is the config itself."""
    config = describe(home, ONNX).resolved()
    assert recorded_model(home, json.loads(json.dumps(to_tree(config)))) == config


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (None, "does not name its model"),
        ({"spec": "own:build"}, "no code runs because a file names it"),
        ({"spec": "m.yaml"}, "no code runs because a file names it"),
        ({"spec": "timm:resnet10t", "weights": "pretrained"}, "nothing is fetched because a file says so"),
        ({"spec": "onnx:/dev/zero"}, "/dev/zero, which is not a regular file"),
        ({"spec": "m.onnx", "labels": "/dev/zero"}, "/dev/zero, which is not a regular file"),
        ({"spec": "m.onnx", "size": "x"}, "does not say how its model was loaded .*size"),
        ({"spec": "gone/model"}, "which is gone; --model names where it is now"),
    ],
)
def test_refused_record(tmp_path, tree, message):
    """A stranger's record imports no code, fetches nothing and waits for no pipe."""
    with pytest.raises(InvalidInputError, match=message):
        recorded_model(tmp_path / "certificates", tree)
