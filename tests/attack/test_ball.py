"""The balls of three norms in exact numbers."""

import numpy as np
import pytest
import torch

from multiguard.attack import Hide, pgd, random_search
from multiguard.attack.threats import Ball
from multiguard.certify import TopK


@pytest.mark.parametrize("order", [1, 2, np.inf])
@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("sphere", [False, True])
def test_projection(order, box, sphere):
    """No perturbation is longer than allowed, computed from the float32 values as they are."""
    generator, ball = torch.Generator().manual_seed(0), Ball(order)
    clean = torch.randint(0, 256, (40, 3, 8, 8), generator=generator).float() / 255
    radius = torch.logspace(-9, 1, 40, dtype=torch.float64)
    images = ball.project(clean, clean + torch.randn(clean.shape, generator=generator), radius, box=box, sphere=sphere)
    perturbation = (images.double().numpy() - clean.double().numpy()).reshape(40, -1)
    assert np.all(np.linalg.norm(perturbation, ord=order, axis=1) <= radius.numpy())
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


@pytest.mark.parametrize("attack", [pgd, random_search])
@pytest.mark.parametrize(("attacker", "exact"), [("l1-norm", 0.4), ("l2-norm", 0.4 / np.sqrt(2)), ("linf-norm", 0.2)])
def test_radius(attack, attacker, exact):
    """A lead of d of one number over another takes d to undo in the l1-norm, d / sqrt(2) in the l2, d / 2 in linf."""
    rows, how = np.array([[0.4, 0.0], [0.4, 0.0]]), {"labels": ["cat", "dog"], "device": "cpu", "attacker": attacker}
    for factor, broken in ((0.97, False), (1.03, True)):
        found = attack(lambda x: 2 * x, rows, Hide("cat"), TopK(1, 1), radius=factor * exact, **how)
        assert (found.success == broken).all()
        assert np.all(found.norms <= factor * exact)
        order = {"l1-norm": 1, "l2-norm": 2, "linf-norm": np.inf}[attacker]
        assert np.all(np.linalg.norm(found.delta, ord=order, axis=1) <= factor * exact + 1e-6)
