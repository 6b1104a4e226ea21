"""The Python blocks of README and of the pages run, one after the other, on small models and data."""

import re
import shutil
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from tests.models.small_models import write_onnx
from torch import nn

import multiguard
from multiguard import CertifyConfig, Smoother, certify_votes, load, read_votes
from multiguard.data.in_memory import as_dataset
from multiguard.smooth import vote_dataset

ROOT = Path(__file__).parents[2]
BUILT_IN = Path(multiguard.__file__).parent / "models" / "weights" / "coco"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = {path.name: blocks for path in PAGES if (blocks := BLOCK.findall(path.read_text(encoding="utf-8")))}


def scores(rows):
    """The first columns of each row as the scores of the labels."""
    return np.asarray(rows).reshape(len(rows), -1)[:, :10]


def small(*_, **__):
    """A classifier of ten labels, whatever was asked for."""
    return load(scores, labels=[f"label {i}" for i in range(10)], name="small", output="logits")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the blocks take for granted: a model, data, and files that earlier steps wrote."""
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    inputs, truth = rng.normal(size=(8, 10)), rng.integers(10, size=8)
    inputs[np.arange(8), truth] += 4
    targets = np.eye(10, dtype=np.int64)[truth]
    classifier = small()
    dataset = as_dataset((inputs, targets), classifier.label_names)
    vote_dataset(Smoother(classifier, sigma=0.5), dataset, "runs/votes", draws=40)
    certify_votes(CertifyConfig(k=4, k_prime=2), read_votes("runs/votes"), out="certificates")
    shutil.copytree(BUILT_IN, "runs/digits")
    write_onnx(tmp_path / "yolov8n.onnx", "N")
    return {
        "model": scores,
        "names": list(classifier.label_names),
        "X": inputs,
        "Y": targets,
        "image": inputs[0],
        "network": scores,
        "dataset": dataset,
    }


@pytest.mark.parametrize("page", sorted(set(PYTHON) - {"attack.md"}))
def test_blocks(page, names, monkeypatch):
    """The blocks of a page run in their order."""
    if page == "own-model.md":  # three labels
        targets = np.eye(3, dtype=np.int64)[[0, 1, 2, 0, 1, 2, 0, 1]]
        names |= {"X": 4.0 * targets, "Y": targets}
    if page == "deployment.md":
        monkeypatch.setattr("multiguard.load", small)
    monkeypatch.setattr("multiguard.certify.rules._OWN", {})
    for block in PYTHON[page]:
        exec(compile(block, page, "exec"), names)


def test_attack_blocks(names):
    """The attacks of docs/attack.md run on a small network of images."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 20, 10)).eval()
    images = np.random.default_rng(1).random((2, 3, 20, 20)).astype(np.float32)
    names |= {"network": network, "model": network, "images": images, "X": images, "image": images[0]}
    names |= {"labels": np.eye(10, dtype=bool)[[1, 2]], "names": ["person", "dog", *map(str, range(8))]}
    names["classifier"] = load(network, labels=names["names"], output="logits")
    for block in PYTHON["attack.md"]:
        exec(compile(block, "attack.md", "exec"), names)


def test_blocks_can_fail(names):
    """A block with a name that does not exist fails."""
    with pytest.raises(ImportError):
        exec("from multiguard import Smother", names)
