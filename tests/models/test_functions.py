"""Functions of a batch: tensors or NumPy arrays in, tensors or NumPy arrays out."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from multiguard.errors import ModelError
from multiguard.models import load
from multiguard.smooth import Smoother

WEIGHTS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
ROWS = np.random.default_rng(1).random((5, 6)).astype(np.float32)
GENERATOR = np.random.default_rng(2)

FUNCTIONS = {
    "tensors to tensors": lambda x: torch.as_tensor(x).clone() @ torch.from_numpy(WEIGHTS),
    "tensors to arrays": lambda x: (x.clone() @ torch.from_numpy(WEIGHTS)).numpy(),
    "arrays to arrays": lambda x: x.astype(np.float64) @ WEIGHTS,
    "arrays to tensors": lambda x: torch.from_numpy(x) @ torch.from_numpy(WEIGHTS),
    "arrays to sparse arrays": lambda x: csr_matrix(x.astype(np.float64) @ WEIGHTS),
    "arrays to lists": lambda x: (x.copy() @ WEIGHTS).tolist(),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_function(kind):
    """Every pair of kinds gives the scores, in the first batch and in later ones."""
    classifier = load(FUNCTIONS[kind])
    for _ in range(2):
        scores = classifier(torch.from_numpy(ROWS))
        assert torch.allclose(scores.double(), torch.from_numpy(ROWS @ WEIGHTS).double(), atol=1e-5)
    assert classifier.find_labels(torch.from_numpy(ROWS)) == ("0", "1", "2")


@pytest.mark.parametrize("function", [lambda x: x[:, :3] * x.std(), lambda x: GENERATOR.random((len(x), 3))])
def test_two_functions_in_one(function):
    """A function that means something else for arrays is refused: nobody can tell which was meant."""
    with pytest.raises(ModelError, match="other scores for NumPy arrays than for tensors"):
        load(function)(torch.from_numpy(ROWS))
    load(lambda x: function(x.numpy()))(torch.from_numpy(ROWS))


def test_function_that_writes():
    """A function of both kinds may write into its input."""

    def doubled(x):
        x *= 2
        return x[:, :3]

    scores = load(doubled)(torch.from_numpy(ROWS.copy()))
    assert torch.equal(scores, torch.from_numpy(2 * ROWS[:, :3]))


def test_error_of_function():
    """The error of a function that takes neither is its own."""

    def broken(x):
        raise KeyError("no such feature")

    with pytest.raises(KeyError, match="no such feature"):
        load(broken)(torch.from_numpy(ROWS))


def test_arrays_and_precision():
    """No record may claim a precision that NumPy does not have."""
    classifier = load(FUNCTIONS["arrays to arrays"], labels=list("abc"))
    smoother = Smoother(classifier, sigma=0.5, device="cpu", precision="bfloat16")
    with pytest.raises(ModelError, match="precision='float32'"):
        smoother.votes(ROWS[0], 10, noise_seed=0, image_id="a")


@pytest.mark.parametrize("result", [torch.zeros(3), torch.zeros(2, 2, 2), None, torch.zeros(5, 2)])
def test_no_scores(result):
    """A result without one row of scores per input is refused."""
    with pytest.raises(ModelError, match="one row of scores per input"):
        load(lambda x: result if isinstance(x, torch.Tensor) else x.clone()).find_labels(torch.zeros(2, 4))
