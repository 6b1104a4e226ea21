"""What a training starts from: splits, built-in networks, model folders, weights files, the user's own modules."""

import sys

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.pipeline.tiny_run import command

from multiguard.certify import Gaussian
from multiguard.data import DigitsDataset, load_pixels
from multiguard.data.config import DataConfig
from multiguard.errors import InvalidInputError, ModelError, MultiGuardError
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.card import folder_checksum, read_card
from multiguard.models.model_folder import load_folder, save_folder
from multiguard.train import TrainConfig, train
from multiguard.train.start import image_size, open_splits, start_backbone
from multiguard.train.trainer import noisy_map

LABELS = ("emu", "cat", "dog")  # not in the order of the alphabet
SIZE = 16
CODE = """
from torch import nn
def net(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3))
shared = net()
def wide(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
def scores(images): return images.flatten(1)[:, :3]
"""
CONFIG = TrainConfig(model="cnn:2", epochs=0, batch=4, sigma=0.1)  # no epoch: only what it starts from
DIGITS = DataConfig("digits", size=SIZE)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The current folder: labelled images in `set`, the names of the labels, a file with code."""
    (tmp_path / "set").mkdir()
    rows = [(f"{i}.png", sorted(LABELS)[i % 3], "train" if i < 20 else "val") for i in range(26)]
    for name, label, _ in rows:
        colour = {"cat": "red", "dog": "lime", "emu": "blue"}[label]
        Image.new("RGB", (SIZE, SIZE), colour).save(tmp_path / "set" / name)
    (tmp_path / "set" / "labels.csv").write_text("file,labels,split\n" + "".join(f"{','.join(row)}\n" for row in rows))
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    (tmp_path / "own_net.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_net", None)


@pytest.fixture
def data(home):
    """These images as data."""
    return DataConfig("folder", root=home / "set", size=SIZE)


def test_learning(tmp_path):
    """A short run on digits learns to see through the noise it is trained for."""
    config = TrainConfig(model="cnn:12", images=800, val_images=100, epochs=6, sigma=0.25, batch=16, lr=1e-2, shift=0)
    train(config, DIGITS, out=tmp_path)
    test, model = load_pixels(DigitsDataset("test", images=200, size=SIZE)), load_folder(tmp_path)
    assert noisy_map(model, test, Gaussian(0.25)) > 0.65  # an untrained network has 0.35
    assert noisy_map(model, test, Gaussian(0.25)) > noisy_map(model, test, Gaussian(0.75))


def test_start_from_folder(home, data):
    """A model folder is a start, with its size and another dropout, but not with other weights or labels."""
    first = train(CONFIG, data, out=home / "m")
    again, unsized = CONFIG.replace(model=str(home / "m")), data.replace(size=None)
    assert train(again, unsized, out=home / "n").card.weights_sha256 == first.card.weights_sha256
    assert image_size(again, unsized) == SIZE
    dropped = again.replace(dropout=0.7)
    assert start_backbone(dropped, unsized, open_splits(dropped, unsized)[0]).network.dropout.p == 0.7
    with pytest.raises(InvalidInputError, match="give one or the other"):
        train(again.replace(weights="pretrained"), unsized, out=home / "o")
    with pytest.raises(InvalidInputError, match="was trained for other labels"):
        train(again, DIGITS, out=home / "o")


def test_teacher(home, data):
    """A teacher is a model folder for the same labels and size, and part of the record."""
    train(CONFIG, data, out=home / "m")
    taught = CONFIG.replace(epochs=1, teacher=home / "m")
    card = train(taught, data, out=home / "n").card
    assert card.training["teacher_sha256"] == folder_checksum(home / "m")
    with pytest.raises(InvalidInputError, match="teacher_sha256"):
        train(taught.replace(teacher=None), data, out=home / "n")
    with pytest.raises(InvalidInputError, match=r"is for images of \(16, 16\)"):
        train(taught, data.replace(size=8), out=home / "o")
    with pytest.raises(InvalidInputError, match="has other labels than digits"):
        train(taught, DIGITS, out=home / "o")


def test_half(home, data):
    """Half precision halves the file, loads as float32 with the rounded weights, and is another run."""
    config = CONFIG.replace(model="cnn:8")
    for name, half in (("m", False), ("n", True)):
        train(config.replace(half=half), data, out=home / name)
    first, loaded = load_folder(home / "m"), load_folder(home / "n")
    for name, tensor in loaded.state_dict().items():
        rounded = first.state_dict()[name].half().float() if tensor.is_floating_point() else tensor
        assert tensor.dtype == rounded.dtype
        assert torch.equal(tensor, rounded) or name in ("mean", "std")
    sizes = [(home / name / "model.safetensors").stat().st_size for name in "mn"]
    assert sizes[1] < 0.7 * sizes[0]
    with pytest.raises(InvalidInputError, match="half"):
        train(config, data, out=home / "n")


def test_other_start(home, data):
    """Other data options or other weights in the folder to start from do not resume a run; force starts again."""
    card = train(CONFIG, data, out=home / "m").card
    assert card.training["data_options"] == {}
    with pytest.raises(InvalidInputError, match="data_options"):
        train(CONFIG, data.replace(separator="|"), out=home / "m")
    starting = CONFIG.replace(model=str(home / "m"))
    assert train(starting, data, out=home / "n").card.training["model_sha256"] == card.weights_sha256
    save_folder(home / "m", card, build_backbone("cnn:2", 3).network)
    with pytest.raises(InvalidInputError, match="model_sha256"):
        train(starting, data, out=home / "n")
    assert train(starting, data, out=home / "n", force=True).card.training["model_sha256"] != card.weights_sha256


def test_splits(data):
    """A folder's splits are used by default; one split holds out a tenth, or fewer; a common image is refused."""
    cases = [
        ({}, (20, 6)),
        ({"split": "all"}, (23, 3)),
        *[
            ({"split": "train", "val_split": "train", "val_images": most}, parts)
            for most, parts in ((None, (18, 2)), (1, (19, 1)), (30, (18, 2)))
        ],
    ]
    for change, expected in cases:
        assert tuple(map(len, open_splits(CONFIG.replace(**change), data))) == expected
    with pytest.raises(InvalidInputError, match=r"6 images of folder set, split val, the first '20\.png'"):
        open_splits(CONFIG.replace(split="all", val_split="val"), data)


def test_head_of_file(home, data):
    """A head from a file needs its label names, and then keeps its meaning; another head is replaced."""
    network = build_backbone("cnn:4", 3).network
    save_file(network.state_dict(), home / "head.safetensors")
    filled = CONFIG.replace(model="cnn:4", weights="head.safetensors")
    with pytest.raises(InvalidInputError, match="--labels FILE, one name per line"):
        train(filled, data, out=home / "m")
    card = train(filled.replace(labels=home / "names.txt"), data, out=home / "m").card
    assert card.label_names == LABELS
    images = torch.rand(2, 3, SIZE, SIZE)
    assert torch.allclose(load(str(home / "m"))(images), network.eval()((images - 0.5) / 0.5), atol=1e-6)
    save_file(build_backbone("cnn:4", 7).network.state_dict(), home / "body.safetensors")
    other = train(CONFIG.replace(model="cnn:4", weights="body.safetensors"), data, out=home / "n").card
    assert other.label_names == tuple(sorted(LABELS))


def test_own_module(home, data):
    """A module of the user's own trains; its folder runs no code unless the user names it."""
    card = train(CONFIG.replace(model="own_net.py:net", epochs=1), data, out=home / "m").card
    assert (card.architecture, card.label_names) == ("own_net.py:net", tuple(sorted(LABELS)))
    sys.modules.pop("own_net")
    with pytest.raises(ModelError, match=r"name it yourself: --model own_net\.py:net --weights"):
        load(str(home / "m"))
    assert "own_net" not in sys.modules
    classifier = load("own_net.py:net", weights=home / "m")
    assert classifier.label_names == tuple(sorted(LABELS))
    assert (classifier.weights_hash, classifier.code_hash is None) == (card.weights_sha256, False)
    vote = ["--data", "folder", "--root", "set", "--split", "val", "--draws", 10, "--out", "votes"]
    code, out, err = command("vote", "--model", "own_net.py:net", "--weights", "m", *vote)
    assert code == 0, err
    assert "order of labels: " not in out
    assert command("predict", "set/0.png", "--model", "own_net.py:net", "--weights", "m", "--k", 1)[0] == 0


def test_shared_module(home, data):
    """A module that the code holds once is copied: one training does not start from another's weights."""
    untrained = CONFIG.replace(model="own_net.py:shared")
    before = train(untrained, data, out=home / "a").card.weights_sha256
    trained = train(untrained.replace(epochs=1), data, out=home / "b").card.weights_sha256
    assert trained != before == train(untrained, data, out=home / "c").card.weights_sha256
    one, two = (load("own_net.py:shared", weights=home / name) for name in "ab")
    assert not torch.equal(one.network[1].weight, two.network[1].weight)


def test_further_training(home, data):
    """The user's code goes on from a folder that was trained from it, with its size and labels."""
    own = CONFIG.replace(model="own_net.py:net")
    card = train(own.replace(labels=home / "names.txt"), data, out=home / "m").card
    assert card.label_names == LABELS
    again = train(own.replace(weights=str(home / "m")), data.replace(size=None), out=home / "n").card
    assert (again.label_names, again.weights_sha256) == (LABELS, card.weights_sha256)
    assert again.training["weights"]["sha256"] == card.weights_sha256


@pytest.mark.parametrize(
    ("change", "size", "message"),
    [
        ({"model": "own_net.py:wide"}, SIZE, r"returns shape \(1, 4\).*the data has 3 labels"),
        ({"model": "own_net.py:scores"}, SIZE, "has no weights to fill or train"),
        ({"model": "own_net.py:net"}, None, "give --size"),
        ({"model": "own_net.py:net"}, 8, "takes no images of 8x8"),
        ({"model": "own_net.py:net", "dropout": 0.5}, SIZE, "dropout"),
        ({"model": "hf:nowhere"}, SIZE, "no network to train"),
        ({"model": None}, None, "no model given for 'folder'"),
        ({"sigma": 0.2}, SIZE, "holds a run with other settings: "),
        ({"epochs": 2, "denoise_epochs": 1}, SIZE, "no U-Net in front"),
        ({"denoise_weight": 0.5}, SIZE, "denoise_weight is 0.5, and the network has no U-Net in front"),
        ({"drop_path": 0.1}, SIZE, "only lite networks can skip blocks"),
    ],
)
def test_early_mistakes(home, data, monkeypatch, change, size, message):
    """What cannot be trained is one clear line, before any image is decoded."""
    train(CONFIG, data, out=home / "m")
    monkeypatch.setattr("multiguard.train.loop.load_pixels", None)  # decoding would be a TypeError
    config = CONFIG.replace(**change)
    out = home / "m" if {"sigma"} & change.keys() else home / "n"
    with pytest.raises(MultiGuardError, match=message):
        train(config, data.replace(size=size), out=out)


def test_run_of_own_module(home):
    """A recipe trains the user's module and votes with it."""
    (home / "r.yaml").write_text(
        "data: {name: folder, root: set, split: val, size: 16}\nsigma: 0.1\n"
        "train: {model: 'own_net.py:net', split: train, epochs: 1}\nvote: {draws: 20}\n"
        "certify: {k: 1, k_prime: 1, alpha: 0.1}\n"
    )
    code, out, err = command("run", "r.yaml", "--out", "r", "--until", "certify")
    assert code == 0, err
    assert "own_net.py:net is code that the recipe names" in out
    assert read_card(home / "r" / "model").architecture == "own_net.py:net"
