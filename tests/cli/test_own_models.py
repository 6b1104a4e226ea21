"""Models of the user's own on the command line: each works, or is refused in one line."""

import sys

import pytest
from PIL import Image
from tests.models.small_models import write_onnx
from tests.pipeline.tiny_run import command

from multiguard.votes import read_votes

LABELS = ("emu", "cat", "dog", "ant")
CODE = """
import torch
from torch import nn
from multiguard.models import Classifier
torch.manual_seed(1)
net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)).eval()
named = Classifier(net, ["emu", "cat", "dog", "ant"], name="own")
def scores(batch): return net(batch)
def fails(batch): raise KeyError("no\\nsuch feature")
def pair(batch): return batch[0], batch[1]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The current folder: labelled images, label names, code and an ONNX file of the same network."""
    (tmp_path / "images").mkdir()
    for index, label in enumerate(LABELS):
        Image.new("RGB", (32, 32), (60 * index, 90, 120)).save(tmp_path / "images" / f"{label}.png")
    rows = [f"{label}.png,{label}\n" for label in LABELS]
    (tmp_path / "images" / "labels.csv").write_text("file,labels\n" + "".join(rows))
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    (tmp_path / "few.txt").write_text("emu")
    (tmp_path / "my_net.py").write_text(CODE)
    write_onnx(tmp_path / "net.onnx", "N")
    (tmp_path / "net.yaml").write_text("{spec: net.onnx, labels: names.txt, size: 32}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_net", None)


def vote(*model):
    """The exit code, stdout and stderr of a small vote with this model."""
    return command("vote", "--model", *model, "--data", "folder", "--root", "images", *DRAWS)


DRAWS = ["--draws", 10, "--sigma", 0.2, "--size", 32, "--noise-seed", 0, "--out", "votes"]


@pytest.mark.parametrize(
    "model",
    [
        ["my_net.py:net", "--labels", "names.txt"],
        ["my_net:scores", "--labels", "names.txt"],
        ["net.onnx", "--labels", "names.txt"],
        ["net.yaml"],
    ],
)
def test_model(home, model):
    """Every kind votes and predicts, with the names in the file's order."""
    code, out, err = vote(*model)
    assert code == 0, err
    assert "scores are read" not in out
    votes = read_votes(home / "votes")
    assert votes.provenance.label_names == LABELS
    code, _, err = command("predict", "images/cat.png", "--model", *model, *PREDICT)
    assert code == 0, err


PREDICT = ["--sigma", 0.2, "--size", 32, "--draws", 10, "--k", 2]


def test_named_model(home):
    """A classifier that names its labels needs no file."""
    code, _, err = command("vote", "--model", "my_net.py:named", "--data", "folder", "--root", "images", *WITHOUT_SIZE)
    assert code == 0, err
    assert read_votes(home / "votes").provenance.label_names == LABELS


WITHOUT_SIZE = [word for word in DRAWS if word not in ("--size", 32)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (["my_net.py:net"], "does not say which score belongs to which label; give --labels FILE"),
        (["net.onnx", "--labels", "few.txt"], "returns 4 scores, and --labels (labels=[...]) names 1"),
        (["my_net.py:fails", "--labels", "names.txt"], "KeyError"),
        (["my_net.py:pair", "--labels", "names.txt"], "it returned tuple"),
        (["my_net.py:nat"], "unknown name in my_net.py 'nat'"),
        (["images"], "expected a model folder"),
        (["net.onnx", "--labels", "names.txt", "--rule", "threshold"], "declare --output logits or probabilities"),
    ],
)
def test_mistakes(home, model, message):
    """A mistake is one line."""
    code, _, err = vote(*model)
    assert (code, err.count("\n"), err[:12]) == (2, 1, "multiguard: "), err
    assert message in err
