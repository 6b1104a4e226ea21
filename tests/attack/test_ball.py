"""The l2-ball and the l1-ball in exact numbers."""

import numpy as np
import pytest
import torch

from multiguard.attack import Hide, pgd, random_search
from multiguard.attack.threats import Ball
from multiguard.certify import TopK


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("sphere", [False, True])
def test_projection(order, box, sphere):
    """No perturbation is longer than allowed, computed from the float32 values as they are."""
    generator, ball = torch.Generator().manual_seed(0), Ball(order)
    clean = torch.randint(0, 256, (40, 3, 8, 8), generator=generator).float() / 255
    radius = torch.logspace(-9, 1, 40, dtype=torch.float64)
    images = ball.project(clean, clean + torch.randn(clean.shape, generator=generator), radius, box=box, sphere=sphere)
    perturbation = (images.double().numpy() - clean.double().numpy()).reshape(40, -1)
    assert np.all(np.sum(np.abs(perturbation) ** order, axis=1) ** (1 / order) <= radius.numpy())
    assert not box or (images.min() >= 0 and images.max() <= 1)
    if sphere and not box:
        assert torch.all(ball.distances(clean, images)[20:] > 0.99 * radius[20:])


def test_nearest_point():
    """The l1 projection is the nearest point of the ball: no step towards another point of the ball comes nearer."""
    rng, ball = np.random.default_rng(0), Ball(1)
    far = rng.normal(size=(1, 12)).astype(np.float32) * 3
    radius = torch.tensor([2.0], dtype=torch.float64)
    nearest = ball.project(torch.zeros(1, 12), torch.from_numpy(far), radius, box=False).numpy()
    assert np.abs(nearest).sum() == pytest.approx(2.0, rel=1e-4)
    corners = np.concatenate([2 * np.eye(12), -2 * np.eye(12)])
    assert np.all((far - nearest) @ (corners - nearest).T <= 1e-4), "the ball is on the other side of the hyperplane"


def test_inside():
    """A perturbation that is short enough stays as it is."""
    given = torch.tensor([[0.25, -0.5, 0.125]])
    radius = torch.tensor([0.9], dtype=torch.float64)
    assert torch.equal(Ball(1).project(torch.zeros(1, 3), given, radius, box=False), given)


@pytest.mark.parametrize("attack", [pgd, random_search])
def test_l1_radius(attack):
    """In the l1-ball a lead of d in one number takes d to undo, in the l2-ball d / sqrt(2)."""
    rows = np.array([[0.4, 0.0], [0.4, 0.0]])
    model, how = (lambda x: 2 * x), {"labels": ["cat", "dog"], "device": "cpu"}
    far = attack(model, rows, Hide("cat"), TopK(1, 1), radius=0.41, attacker="l1-norm", **how)
    near = attack(model, rows, Hide("cat"), TopK(1, 1), radius=0.39, attacker="l1-norm", **how)
    assert far.success.all()
    assert not near.success.any()
    assert np.all(far.norms <= 0.41)
    assert np.all(np.abs(far.delta).sum(axis=1) <= 0.41 + 1e-6)
