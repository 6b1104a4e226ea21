import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from multiguard.train.losses import LOSSES, asymmetric_loss, binary_cross_entropy, softmax_cross_entropy

PAPER = (0.0, 4.0, 0.05)


def literal(logits, targets, gamma_positive, gamma_negative, margin):
    """The paper's sum, label by label, in float64."""
    total = 0.0
    for row, marks in zip(logits, targets, strict=True):
        for x, y in zip(row, marks, strict=True):
            q = 1 / (1 + math.exp(-x))
            p = max(q - margin, 0.0)
            positive = (1 - q) ** gamma_positive * math.log(q)
            negative = p**gamma_negative * math.log(1 - p)
            total += -y * positive - (1 - y) * negative
    return total / len(logits)


@pytest.fixture
def batch():
    rng = np.random.default_rng(5)
    return rng.normal(scale=3, size=(7, 11)), (rng.random((7, 11)) < 0.3).astype(float)


@pytest.mark.parametrize("gammas", [PAPER, (1.0, 2.0, 0.2), (0.0, 0.0, 0.0), (2.5, 0.5, 0.01)])
def test_asl_formula(batch, gammas):
    """The asymmetric loss is the paper's sum, and its defaults are the paper's."""
    logits, targets = batch
    positive, negative, margin = gammas
    ours = asymmetric_loss(
        torch.tensor(logits),
        torch.tensor(targets),
        gamma_positive=positive,
        gamma_negative=negative,
        margin=margin,
    )
    assert float(ours) == pytest.approx(literal(logits, targets, *gammas), rel=1e-12)
    if gammas == PAPER:
        assert asymmetric_loss(torch.tensor(logits), torch.tensor(targets)) == ours


@pytest.mark.parametrize("gammas", [PAPER, (1.5, 2.0, 0.2), (0.0, 0.0, 0.0)])
def test_asl_gradient(batch, gammas):
    """The gradient is that of the value, weights included."""
    logits = torch.tensor(batch[0], requires_grad=True)
    targets = torch.tensor(batch[1])
    names = ("gamma_positive", "gamma_negative", "margin")
    assert torch.autograd.gradcheck(
        lambda x: asymmetric_loss(x, targets, **dict(zip(names, gammas, strict=True))), logits
    )


@pytest.mark.parametrize("margin", [0.0, 1e-9, 0.05])
@pytest.mark.parametrize("size", [50.0, 500.0])
@pytest.mark.parametrize("gamma_negative", [0.5, 4.0])
def test_asl_extreme_logits(size, margin, gamma_negative):
    """Loss and gradient are finite in float32 at extreme logits."""
    logits = torch.tensor([[size, -size, size, -size]], requires_grad=True)
    loss = asymmetric_loss(logits, torch.tensor([[1.0, 1.0, 0.0, 0.0]]), margin=margin, gamma_negative=gamma_negative)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert loss.item() >= size


def test_bce(batch):
    """Binary cross-entropy is torch's, and the asymmetric loss without gammas and margin."""
    logits, targets = (torch.tensor(array) for array in batch)
    expected = functional.binary_cross_entropy_with_logits(logits, targets) * 11
    assert float(binary_cross_entropy(logits, targets)) == pytest.approx(float(expected))
    plain = asymmetric_loss(logits, targets, gamma_positive=0, gamma_negative=0, margin=0)
    assert float(plain) == pytest.approx(float(expected))


def test_softmax(batch):
    """The softmax loss is the mean over images of the mean over their labels of -log softmax; it may join ASL."""
    logits, targets = batch
    targets[0] = 0
    rows = [
        [math.log(sum(math.exp(other - x) for other in row)) for x, y in zip(row, marks, strict=True) if y]
        for row, marks in zip(logits, targets, strict=True)
    ]
    expected = sum(sum(row) / len(row) for row in rows if row) / len(rows)
    scores, wanted = torch.tensor(logits), torch.tensor(targets)
    assert float(softmax_cross_entropy(scores, wanted)) == pytest.approx(expected, rel=1e-9)
    both = float(asymmetric_loss(scores, wanted)) + expected / 2
    assert float(LOSSES["asl+softmax"](scores, wanted)) == pytest.approx(both, rel=1e-9)
