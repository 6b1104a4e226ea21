"""Functions of a batch: NumPy arrays or tensors in, NumPy arrays or tensors out."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from multiguard.errors import InvalidInputError, ModelError
from multiguard.models import load
from multiguard.smooth import Smoother

WEIGHTS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
ROWS = np.random.default_rng(1).random((5, 6)).astype(np.float32)

FUNCTIONS = {
    "arrays": {
        "arrays": lambda x: x.astype(np.float64) @ WEIGHTS,
        "sparse arrays": lambda x: csr_matrix(x.astype(np.float64) @ WEIGHTS),
        "lists": lambda x: (x.copy() @ WEIGHTS).tolist(),
        "both": lambda x: x[:, :3],
    },
    "tensors": {
        "tensors": lambda x: torch.as_tensor(x).clone() @ torch.from_numpy(WEIGHTS),
        "arrays": lambda x: (x.clone() @ torch.from_numpy(WEIGHTS)).numpy(),
        "only tensors": lambda x: x.flatten(1) @ torch.from_numpy(WEIGHTS),
    },
}


@pytest.mark.parametrize(("takes", "kind"), [(takes, kind) for takes, kinds in FUNCTIONS.items() for kind in kinds])
def test_function(takes, kind):
    """A function gets arrays, unless it fails on them or returns a tensor; then it gets tensors, again and again."""
    function = FUNCTIONS[takes][kind]
    classifier = load(function).ready(ROWS[:1])
    assert (classifier.takes, classifier.label_names) == (takes, ("0", "1", "2"))
    expected = ROWS[:, :3] if kind == "both" else ROWS @ WEIGHTS
    for _ in range(2):
        assert np.allclose(classifier.scores(ROWS), expected, atol=1e-5)
        assert np.allclose(classifier.module()(torch.from_numpy(ROWS)).numpy(), expected, atol=1e-5)


def test_same_votes():
    """A function of arrays and the same one of tensors get the same noise, and have the same votes."""
    votes = []
    for function in (lambda x: x[:, :3], lambda x: x.clone()[:, :3]):
        smoother = Smoother(function, sigma=0.5, labels=list("abc"), device="cpu")
        votes.append(smoother.votes(ROWS[0], 200, noise_seed=0, image_id="a"))
    assert np.array_equal(*votes)


def test_failure_on_the_first_input():
    """An input that a function fails on does not decide what it takes: black decides then."""

    def scores(x):
        if np.any(x):
            raise ValueError("too bright")
        return x.astype(np.float64)[:, :3]

    assert load(scores, labels=list("abc")).ready(ROWS).takes == "arrays"


def test_function_that_writes():
    """A function may write into its input."""

    def doubled(x):
        x *= 2
        return x[:, :3]

    votes = [
        Smoother(f, sigma=0.5, labels=list("abc"), device="cpu").votes(ROWS[0], 50, noise_seed=0, image_id="a")
        for f in (doubled, lambda x: 2 * x[:, :3])
    ]
    assert np.array_equal(*votes)


def test_error_of_function():
    """The error of a function that takes neither is its own."""

    def broken(x):
        raise KeyError("no such feature")

    with pytest.raises(ModelError, match="no such feature"):
        load(broken).ready(ROWS)


@pytest.mark.parametrize("options", [{"precision": "bfloat16"}, {"device": "meta"}])
def test_options_of_torch(options):
    """No record may claim a precision or a device that a function of arrays does not have."""
    smoother = Smoother(FUNCTIONS["arrays"]["arrays"], sigma=0.5, labels=list("abc"), **options)
    with pytest.raises(InvalidInputError, match=f"{next(iter(options))}"):
        smoother.votes(ROWS[0], 10, noise_seed=0, image_id="a")


@pytest.mark.parametrize("result", [np.zeros(3), torch.zeros(2, 2, 2), torch.zeros(5, 2)])
def test_no_scores(result):
    """A result without one row of scores per input is refused."""
    with pytest.raises(ModelError, match="one row of scores per input"):
        load(lambda x: result).ready(np.zeros((2, 4), np.float32))
    with pytest.raises(ModelError, match="returned NoneType"):
        load(lambda x: None).ready(np.zeros((2, 4), np.float32))
