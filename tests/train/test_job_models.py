"""Training of networks that are not built in: heads from files, Hugging Face folders, the user's own modules."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.pipeline.tiny_run import command

from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.records import checksum
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.huggingface_backbone import hf_backbone
from multiguard.models.loading import weights_checksum
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


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny Hugging Face folder with these labels."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    named = {"id2label": dict(enumerate(LABELS)), "problem_type": "multi_label_classification"}
    folder = tmp_path_factory.mktemp("hf")
    config = transformers.ViTConfig(image_size=SIZE, patch_size=8, **small, **named)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.4], "image_std": [0.3]}))
    return folder


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


def test_hugging_face_folder(home, job, saved):
    """A trained Hugging Face network is a model folder that every command takes, without the folder it came from."""
    start = home / "start"
    start.mkdir()
    for file in saved.iterdir():
        (start / file.name).write_bytes(file.read_bytes())
    card = run_job(replace(job, model=f"hf:{start}", size=None)).card
    assert (card.architecture, card.image_size, card.mean) == ("hf", (SIZE, SIZE), (0.4,))
    for file in start.iterdir():
        file.unlink()
    classifier = load(str(job.out))
    assert classifier(torch.rand(2, 3, SIZE, SIZE)).shape == (2, 3)
    vote = ["--data", "folder", "--root", "set", "--split", "val", "--draws", 10, "--out", "votes"]
    assert command("vote", "--model", "m", *vote)[0] == 0
    assert command("predict", "set/0.png", "--model", "m", "--k", 1, "--draws", 10)[0] == 0
    again = run_job(replace(job, model=str(job.out), size=None, out=home / "n"))
    assert again.card.architecture == "hf"


def test_hugging_face_head(saved):
    """The head of the same labels is kept, in the order of the data; that of other labels is new."""
    images = torch.rand(2, 3, SIZE, SIZE)
    network = pytest.importorskip("transformers").ViTForImageClassification.from_pretrained(saved).eval()
    expected = network(images).logits.detach()
    kept = hf_backbone(str(saved), ("cat", "dog", "emu"))
    assert kept.fresh == ()
    assert torch.allclose(kept.network.eval()(images).logits, expected[:, [1, 2, 0]], atol=1e-6)
    for labels in (("ant", "bee", "cow"), ("ant", "bee")):
        new = hf_backbone(str(saved), labels)
        assert set(new.fresh) == {"classifier.weight", "classifier.bias"}
        assert not torch.allclose(new.network.eval()(images).logits[:, :2], expected[:, :2], atol=1e-3)


def test_hostile_card(home, job, saved):
    """The config in a model folder is hashed, and checked like that of a Hugging Face folder."""
    run_job(replace(job, model=f"hf:{saved}", size=None))
    stored, before = json.loads((job.out / "model.json").read_text()), load(str(job.out)).weights_hash

    def forge(**entries):
        changed = {**stored, "config": {**stored["config"], **entries}}
        (job.out / "model.json").write_text(json.dumps({**changed, "sha256": checksum(changed)}))

    forge(hidden_act="relu")
    assert load(str(job.out)).weights_hash == weights_checksum(str(job.out)) != before
    for entries in ({"num_hidden_layers": 10**6}, {"model_type": "own"}, {"auto_map": {"AutoConfig": "own.C"}}):
        forge(**entries)
        with pytest.raises(ModelError, match=r"larger network|model_type|foreign code"):
            load(str(job.out))


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
        ({"model": "hf:nowhere"}, r"config\.json cannot be read"),
        ({"model": "onnx:m.onnx"}, "unknown architecture"),
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
