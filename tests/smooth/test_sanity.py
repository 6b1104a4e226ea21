"""What cannot be certified is refused before the first vote, what looks wrong is said, and neither without cause."""

import numpy as np
import pytest
import torch
from tests.pipeline.tiny_run import command

from multiguard.certify import Gaussian, Threshold, TopK
from multiguard.certify.radii import fewest_draws, largest_radius
from multiguard.errors import ModelError
from multiguard.smooth import Smoother

DATA = ["--data", "digits", "--size", 16, "--images", 8]
GOOD = [*DATA, "--sigma", 0.25, "--draws", 100]


def templates(scale=20.0):
    """A linear classifier that finds most digits: the correlation with each digit's mean image."""
    from multiguard.data import DigitsDataset

    digits = DigitsDataset("train", size=16, images=300)
    means = torch.zeros(10, 3 * 16 * 16)
    for index in range(300):
        sample = digits[index]
        for label in sample.labels:
            means[label] += torch.from_numpy(sample.image.copy()).flatten() / 255
    layer = torch.nn.Linear(3 * 16 * 16, 10)
    with torch.no_grad():
        means = means / means.norm(dim=1, keepdim=True)
        layer.weight.copy_(scale * (means - means.mean(0)))
        layer.bias.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


def wrong_order():
    """Templates whose scores are in another order than the labels."""
    network = templates()
    with torch.no_grad():
        network[1].weight.copy_(network[1].weight.roll(5, 0))
    return network


def checked(name, *more):
    """A dry run, unless a folder is named."""
    how = [] if "--out" in more else ["--dry-run"]
    code, out, err = command("vote", "--model", f"{__name__}:{name}", "--output", "logits", *GOOD, *how, *more)
    return code, out + err


def test_good_model():
    """A model that is as it should be gives no warning, and the pass says what to expect."""
    code, said = checked("templates")
    assert code == 0, said
    assert "nothing looks wrong" in said
    assert "100 draws that all agree on one label prove l2-norm " in said
    assert "8 images x 100 draws take about" in said
    assert "recall on 8 images: " in said


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "templates",
            ["--set", "mean=124", "--set", "std=58"],
            "mean reaches 124, and pixels lie in [0, 1]: divide it by 255",
        ),
        ("templates", ["--sigma", 64], "sigma is 64, and pixels lie in [0, 1]"),
        ("templates", ["--sigma", 1.9, "--seed", 5], "under noise: train under noise, or take less of it"),
        ("templates", ["--draws", 5], "5 draws prove nothing, even if all of them agree"),
    ],
)
def test_warnings(name, more, message):
    """What looks wrong is said."""
    code, said = checked(name, *more)
    assert (code, f"warning: {message}" in said or message in said) == (0, True), said
    assert "nothing looks wrong" not in said


def random_onnx(file, kind):
    """An ONNX file whose scores are drawn again at each call: dropout in training mode, or noise."""
    onnx, helper = pytest.importorskip("onnx"), pytest.importorskip("onnx.helper")
    weight = templates()[1].weight.detach().T.numpy()
    tensors = {"weight": weight, "shape": np.array([0, -1]), "ratio": np.float32(0.2), "training": np.array(True)}
    last = {
        "dropout": [helper.make_node("Dropout", ["plain", "ratio", "training"], ["scores"])],
        "noise": [
            helper.make_node("RandomNormalLike", ["plain"], ["noise"], scale=0.5),
            helper.make_node("Add", ["plain", "noise"], ["scores"]),
        ],
    }
    nodes = [
        helper.make_node("Reshape", ["images", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["plain"]),
        *last[kind],
    ]
    ends = [
        [helper.make_tensor_value_info("images", 1, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("scores", 1, ["N", 10])],
    ]
    stored = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "random", *ends, initializer=stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


@pytest.mark.parametrize("kind", ["dropout", "noise"])
def test_random_onnx(tmp_path, kind):
    """ONNX nodes that draw at random are noticed."""
    random_onnx(tmp_path / "model.onnx", kind)
    smoother = Smoother(f"onnx:{tmp_path / 'model.onnx'}", 0.25, labels=list("0123456789"), device="cpu")
    with pytest.raises(ModelError, match="answers the same batch differently each time"):
        smoother.predict(np.zeros((3, 16, 16), np.uint8), TopK(1, 1), draws=20)


def test_score_order():
    """Scores in another order than the labels are noticed by recall at chance."""
    code, said = checked("wrong_order")
    assert (code, "hardly better than chance (50%): check the order of --labels" in said) == (0, True), said


@pytest.mark.parametrize("rule", [TopK(1, 1), TopK(5, 3), Threshold(0.5), Threshold(0.9)])
def test_fewest_draws(rule):
    """One draw fewer proves nothing, and more draws prove more."""
    fewest = fewest_draws(rule, 20, 0.001)
    radii = [
        largest_radius(draws, rule, 20, Gaussian(0.5), 0.001) for draws in (fewest - 1, fewest, 4 * fewest, 16 * fewest)
    ]
    assert radii[0] < 0 <= radii[1] < radii[2] < radii[3]


def test_too_few_draws_certified(tmp_path):
    """Certifying too few draws says why nothing is proved."""
    code, _ = checked("templates", "--draws", 5, "--out", tmp_path / "votes")
    assert code == 0
    code, out, err = command("certify", tmp_path / "votes", "--k", 1, "--k-prime", 1)
    assert code == 0, err
    assert "note: 5 draws prove nothing by the method joint, even if all of them agree: at alpha = 0.001" in out
