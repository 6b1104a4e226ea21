"""A classifier's state, and the labels that it does not name."""

import numpy as np
import pytest
import torch
from small_models import LABELS, small_network

from multiguard.errors import ModelError
from multiguard.models import load, torch_model
from multiguard.models.torch_model import state_checksum, state_hash, state_sums


def test_state_hash():
    """The hash of a module is the hash of its weights."""
    one, same, other = small_network(), small_network(), small_network()
    with torch.no_grad():
        other[0].weight[0, 0, 0, 0] += 1
    hashes = [load(n, labels=LABELS, output="logits").weights_hash for n in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def _states():
    """Modules that differ from the first in one value each, of every kind, or in a name, a shape or a dtype."""

    def module(shape=(3, 5), name="a", **tensors):
        made = torch.nn.Module()
        made.register_buffer(name, torch.arange(15.0).reshape(shape))
        kinds = (torch.bool, torch.uint8, torch.int16, torch.bfloat16, torch.float64, torch.int64, torch.complex64)
        for kind in kinds:
            key = f"of_{kind}".replace("torch.", "")
            made.register_buffer(key, tensors.get(key, torch.ones(4).to(kind)))
        made.register_buffer("scalar", torch.tensor(1), persistent=False)
        return made

    yield module()
    yield module(shape=(5, 3))
    yield module(name="b")
    yield module(of_int16=torch.ones(4, dtype=torch.bfloat16).view(torch.int16))
    for name, tensor in list(module().named_buffers()):
        for place in range(tensor.numel()):
            other = module()
            values = getattr(other, name).flatten()
            values[place] = 0 if values[place] else 1
            other._buffers[name] = values.reshape(tensor.shape)
            yield other


@pytest.mark.parametrize("parts", [1 << 22, 4, 1])
def test_state_sums(monkeypatch, parts):
    """The sums, like the hash, see a change of any one value; the order in memory does not matter to them."""
    monkeypatch.setattr(torch_model, "_WORDS_AT_ONCE", parts)
    states = list(_states())
    for digest in (state_sums, state_hash):
        assert len({digest(state) for state in states}) == len(states)
        assert digest(states[0]) == digest(next(_states()))
        weights = torch.nn.Conv2d(4, 4, 3)
        before = digest(weights)
        assert digest(weights.to(memory_format=torch.channels_last)) == before
    assert state_sums(torch.nn.Module()) == state_sums(torch.nn.ReLU())


def _sums(values: torch.Tensor) -> str:
    module = torch.nn.Module()
    module.register_buffer("values", values)
    return state_sums(module)


def test_views_in_a_state():
    """Conjugated views have the digest of their values."""
    complex_values = torch.tensor([1 + 2j, 3 - 4j])
    for digest in (state_hash, state_sums):
        found = []
        for tensor in (complex_values.conj(), complex_values.conj().resolve_conj(), complex_values):
            module = torch.nn.Module()
            module.register_buffer("values", tensor)
            found.append(digest(module))
        assert found[0] == found[1] != found[2]


def test_state_of_another_device(monkeypatch):
    """Sums stand for a state that is not on the host, the hash for one that is."""
    with torch.device("meta"):
        other = small_network()
    monkeypatch.setattr(torch_model, "state_sums", lambda module: "sums")
    assert state_checksum(other) == "sums"
    assert state_checksum(small_network()) == state_hash(small_network())


def test_wrong_input_shape():
    """A model that cannot read the first input is named, with the shape of that input."""
    classifier = load(torch.nn.Sequential(torch.nn.Linear(20, 6)))
    with pytest.raises(ModelError, match=r"Sequential failed on an input of shape \(7,\): mat1 and mat2"):
        classifier.ready(np.zeros((1, 7), np.float32))
