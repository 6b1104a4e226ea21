"""Models as people have them: what they return, their precision, and programs that torch saved."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_models import LABELS, expected_votes, small_network, votes_of
from torch import nn

from multiguard.errors import ModelError
from multiguard.models import load

ROWS = np.random.default_rng(1).random((5, 4)).astype(np.float32)
RESULTS = {
    "logits by key": lambda scores: {"logits": scores, "features": None},
    "only part": lambda scores: (scores,),
    "logits by name": lambda scores: SimpleNamespace(logits=scores),
    "logits of the only part": lambda scores: (SimpleNamespace(logits=scores),),
}


class Wrapped(nn.Module):
    """The network with its scores in another place."""

    def __init__(self, result):
        super().__init__()
        self.network, self.result = small_network(), result

    def forward(self, images):
        return self.result(self.network(images))


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    """The scores are found in the result of a module, of a function of arrays and of one of tensors."""
    result = RESULTS[name]
    assert np.array_equal(votes_of(load(Wrapped(result), labels=LABELS)), expected_votes(small_network()))
    for function in (lambda x: result(x[:, :3] * np.float64(1)), lambda x: result(x.clone()[:, :3])):
        assert np.allclose(load(function).ready(ROWS).scores(ROWS), ROWS[:, :3])


@pytest.mark.parametrize("result", [lambda scores: {"probs": scores}, lambda scores: (scores, scores)])
def test_ambiguous_results(result):
    """A result with several parts, or without logits, is not guessed."""
    with pytest.raises(ModelError, match="expected one score per input and label, bare or as `logits`"):
        load(Wrapped(result)).ready(np.zeros((1, 3, 32, 32), np.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision_of_module(dtype):
    """A module of another precision gets its inputs in that one; it is another network, with another hash."""
    classifier = load(small_network().to(dtype), labels=LABELS)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(classifier(images).float(), small_network()(images), atol=0.1)
    assert classifier.weights_hash != load(small_network(), labels=LABELS).weights_hash
    assert votes_of(classifier).shape == expected_votes(small_network()).shape


@pytest.mark.parametrize("part", [lambda program: program, lambda program: program.module()])
def test_exported_program(part):
    """A program of torch.export, or its module, is a model."""
    batch = {0: torch.export.Dim("batch", min=1, max=4096)}
    program = torch.export.export(small_network(), (torch.rand(2, 3, 32, 32),), dynamic_shapes=(batch,))
    assert np.array_equal(votes_of(load(part(program), labels=LABELS)), expected_votes(small_network()))


def test_saved_programs(tmp_path):
    """A saved program is named with the way to load it; no program runs because a file is named."""
    torch.jit.script(nn.Linear(2, 2)).save(tmp_path / "net.pt")
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.rand(1, 2),)), tmp_path / "net.pt2")
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    for name, words in (
        ("net.pt", r"return torch\.jit\.load\("),
        ("net.pt2", r"return torch\.export\.load\(.*\)\.module\(\)"),
        ("weights.pt", "weights alone do not say which network"),
    ):
        with pytest.raises(ModelError, match=words):
            load(str(tmp_path / name))
