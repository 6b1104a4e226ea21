"""Small networks, and the votes of a classifier and of the same scores as a plain function."""

import os

import numpy as np
import pytest
import torch
from torch import nn

from multiguard.models import Classifier, load
from multiguard.smooth import Smoother

torch.set_num_threads(1)

LABELS = ["cat", "dog", "cow", "hen"]

IMAGE = np.random.default_rng(0).random((3, 32, 32), dtype=np.float32)


def small_network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)).eval()


def expected_votes(scores, draws: int = 20, size: int = 32) -> np.ndarray:
    reference = load(scores, labels=LABELS, output="logits")
    return Smoother(reference, sigma=0.5, device="cpu").votes(IMAGE[:, :size, :size], draws, noise_seed=0, image_id="a")


def votes_of(classifier: Classifier, draws: int = 20, size: int = 32) -> np.ndarray:
    assert classifier.label_names == tuple(LABELS)
    return Smoother(classifier, sigma=0.5, device="cpu").votes(
        IMAGE[:, :size, :size], draws, noise_seed=0, image_id="a"
    )


def write_onnx(file, rows):
    """A linear network as an ONNX file for batches of `rows` images ("N" for any number), and as a torch module."""
    onnx, helper = pytest.importorskip("onnx"), pytest.importorskip("onnx.helper")
    pytest.importorskip("onnxruntime")
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)).eval()
    names = {"weight": network[1].weight, "bias": network[1].bias}
    tensors = [onnx.numpy_helper.from_array(tensor.detach().numpy(), name) for name, tensor in names.items()]
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight", "bias"], ["scores"], transB=1),
    ]
    inputs = [helper.make_tensor_value_info("images", 1, [rows, 3, 32, 32])]
    outputs = [helper.make_tensor_value_info("scores", 1, [rows, 4])]
    graph = helper.make_graph(nodes, "linear", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(model.SerializeToString())
    return network


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, folder) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)
