"""The hash of a classifier's state."""

import torch
from small_models import LABELS, small_network

from multiguard.models import load_classifier


def test_state_hash():
    """The hash of a module is the hash of its weights."""
    one, same, other = small_network(), small_network(), small_network()
    with torch.no_grad():
        other[0].weight[0, 0, 0, 0] += 1
    hashes = [load_classifier(n, labels=LABELS, output="logits").weights_hash for n in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
