"""ONNX files: run by onnxruntime, hashed with their tensors."""

import numpy as np
import pytest
import torch
from small_models import LABELS, expected_votes, votes_of, write_onnx

from multiguard.errors import ModelError
from multiguard.models import load
from multiguard.smooth import Smoother


@pytest.mark.parametrize("rows", ["N", 1, 8])
def test_onnx(tmp_path, rows):
    """The scores and votes are the network's, also where the file fixes the batch size."""
    network = write_onnx(tmp_path / "model.onnx", rows)
    classifier = load(f"onnx:{tmp_path / 'model.onnx'}", labels=LABELS, output="logits")
    assert classifier.image_size == (32, 32)
    images = torch.rand(11, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(classifier(images), network(images), atol=1e-5)
    assert np.array_equal(votes_of(classifier), expected_votes(network))


def test_undeclared_labels_and_scores(tmp_path):
    """Labels are named by their indices, which the file counts; a score threshold needs the kind of scores."""
    write_onnx(tmp_path / "model.onnx", "N")
    classifier = load(f"onnx:{tmp_path / 'model.onnx'}")
    assert (classifier.label_names, classifier.output) == (("0", "1", "2", "3"), None)
    with pytest.raises(ModelError, match="--output logits or probabilities"):
        Smoother(classifier, sigma=0.5, score_threshold=0.5, device="cpu")
    with pytest.raises(ModelError, match=r"returns 4 scores, and --labels .* names 2"):
        load(f"onnx:{tmp_path / 'model.onnx'}", labels=["cat", "dog"])


def test_session(tmp_path):
    """A session of onnxruntime is the same model as its file."""
    network = write_onnx(tmp_path / "model.onnx", "N")
    session = pytest.importorskip("onnxruntime").InferenceSession(str(tmp_path / "model.onnx"))
    assert np.array_equal(votes_of(load(session, labels=LABELS)), expected_votes(network))
