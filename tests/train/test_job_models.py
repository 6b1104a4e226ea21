"""Training of networks that are not built in: heads from files, the user's own modules."""

import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.pipeline.tiny_run import command

from multiguard.errors import InvalidInputError, ModelError
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.model_folder import read_card
from multiguard.train import Hyperparameters
from multiguard.train.job import TrainJob, run_job

LABELS = ("emu", "cat", "dog")  # not in the order of the alphabet
SIZE = 16
CODE = """
from torch import nn
def net(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3))
shared = net()
def wide(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
def scores(images): return images.flatten(1)[:, :3]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The current folder: labelled images in `set`, the names of the labels, a file with code."""
    (tmp_path / "set").mkdir()
    rows = [(f"{i}.png", sorted(LABELS)[i % 3], "train" if i < 12 else "val") for i in range(18)]
    for name, label, _ in rows:
        Image.new("RGB", (SIZE, SIZE), {"cat": "red", "dog": "lime", "emu": "blue"}[label]).save(
            tmp_path / "set" / name
        )
    (tmp_path / "set" / "labels.csv").write_text("file,labels,split\n" + "".join(f"{','.join(row)}\n" for row in rows))
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    (tmp_path / "own_net.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_net", None)


@pytest.fixture
def job(home):
    """Training on these images."""
    return TrainJob(
        "folder", home / "m", Hyperparameters(epochs=1, batch=4, noise="gaussian:0.1"), root=home / "set", size=SIZE
    )


def test_head_of_file(home, job):
    """A head from a file needs its label names, and then keeps its meaning."""
    network = build_backbone("cnn:4", 3).network
    save_file(network.state_dict(), home / "head.safetensors")
    filled = replace(job, model="cnn:4", weights="head.safetensors", hyperparameters=Hyperparameters(epochs=0, batch=4))
    with pytest.raises(InvalidInputError, match="--labels FILE, one name per line"):
        run_job(filled)
    card = run_job(replace(filled, labels=home / "names.txt")).card
    assert card.label_names == LABELS
    images = torch.rand(2, 3, SIZE, SIZE)
    assert torch.allclose(load(str(job.out))(images), network.eval()((images - 0.5) / 0.5), atol=1e-6)


def test_body_of_file(home, job):
    """Weights with another head need no names: the head is new."""
    save_file(build_backbone("cnn:4", 7).network.state_dict(), home / "body.safetensors")
    card = run_job(replace(job, model="cnn:4", weights="body.safetensors")).card
    assert card.label_names == tuple(sorted(LABELS))


def test_own_module(home, job):
    """A module of the user's own trains; its folder runs no code unless the user names it."""
    card = run_job(replace(job, model="own_net.py:net")).card
    assert (card.architecture, card.label_names) == ("own_net.py:net", tuple(sorted(LABELS)))
    sys.modules.pop("own_net")
    with pytest.raises(ModelError, match=r"name it yourself: --model own_net\.py:net --weights"):
        load(str(job.out))
    assert "own_net" not in sys.modules
    classifier = load("own_net.py:net", weights=job.out)
    assert classifier.label_names == tuple(sorted(LABELS))
    assert (classifier.weights_hash, classifier.code_hash is None) == (card.weights_sha256, False)
    vote = ["--data", "folder", "--root", "set", "--split", "val", "--draws", 10, "--out", "votes"]
    code, out, err = command("vote", "--model", "own_net.py:net", "--weights", "m", *vote)
    assert code == 0, err
    assert "order of labels: " not in out
    assert command("predict", "set/0.png", "--model", "own_net.py:net", "--weights", "m", "--k", 1)[0] == 0


def test_shared_module(home, job):
    """A module that the code holds once is copied: one training does not start from another's weights."""
    untrained = replace(job, model="own_net.py:shared", hyperparameters=Hyperparameters(epochs=0, batch=4))
    before = run_job(replace(untrained, out=home / "a")).card.weights_sha256
    trained = run_job(replace(job, model="own_net.py:shared", out=home / "b")).card.weights_sha256
    assert trained != before == run_job(replace(untrained, out=home / "c")).card.weights_sha256
    one, two = (load("own_net.py:shared", weights=home / name) for name in "ab")
    assert not torch.equal(one.network[1].weight, two.network[1].weight)


def test_further_training(home, job):
    """The user's code goes on from a folder that was trained from it, with its size and labels."""
    card = run_job(replace(job, model="own_net.py:net", labels=home / "names.txt")).card
    assert card.label_names == LABELS
    further = replace(job, model="own_net.py:net", weights=str(job.out), size=None, out=home / "n")
    again = run_job(replace(further, hyperparameters=Hyperparameters(epochs=0, batch=4))).card
    assert (again.label_names, again.weights_sha256) == (LABELS, card.weights_sha256)
    assert again.training["weights"]["sha256"] == card.weights_sha256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "own_net.py:wide"}, r"returns shape \(1, 4\).*the data has 3 labels"),
        ({"model": "own_net.py:scores"}, "has no weights to fill or train"),
        ({"model": "own_net.py:net", "size": None}, "give --size"),
        ({"model": "own_net.py:net", "size": 8}, "takes no images of 8x8"),
        ({"model": "own_net.py:net", "hyperparameters": Hyperparameters(dropout=0.5)}, "--dropout"),
        ({"model": "hf:nowhere"}, "no network to train"),
        ({"model": "onnx:m.onnx"}, "no network to train"),
    ],
)
def test_start_mistakes(job, change, message):
    """What cannot be trained is one clear line, before any image is decoded."""
    with pytest.raises((InvalidInputError, ModelError), match=message):
        run_job(replace(job, **change))


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
