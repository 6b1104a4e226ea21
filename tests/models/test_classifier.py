"""A classifier's state, and the labels that it does not name."""

import pytest
import torch
from small_models import LABELS, small_network

from multiguard.errors import ModelError
from multiguard.models import load


def test_state_hash():
    """The hash of a module is the hash of its weights."""
    one, same, other = small_network(), small_network(), small_network()
    with torch.no_grad():
        other[0].weight[0, 0, 0, 0] += 1
    hashes = [load(n, labels=LABELS, output="logits").weights_hash for n in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_wrong_input_shape():
    """A model that cannot read the first input is named, with the shape of that input."""
    classifier = load(torch.nn.Sequential(torch.nn.Linear(20, 6)))
    with pytest.raises(ModelError, match=r"Sequential failed on an input of shape \(7,\): mat1 and mat2"):
        classifier.find_labels(torch.zeros(1, 7))
