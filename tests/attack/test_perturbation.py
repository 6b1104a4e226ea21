"""The l2-ball in exact numbers."""

import numpy as np
import pytest
import torch

from multiguard.attack.perturbation import distances, project


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("sphere", [False, True])
def test_projection(box, sphere):
    """No perturbation is longer than allowed, computed from the float32 values as they are."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.randint(0, 256, (40, 3, 8, 8), generator=generator).float() / 255
    radius = torch.logspace(-9, 1, 40, dtype=torch.float64)
    images = project(clean, clean + torch.randn(clean.shape, generator=generator), radius, box=box, sphere=sphere)
    perturbation = (images.double().numpy() - clean.double().numpy()).reshape(40, -1)
    assert np.all(np.sqrt(np.sum(perturbation**2, axis=1)) <= radius.numpy())
    assert not box or (images.min() >= 0 and images.max() <= 1)
    if sphere and not box:
        assert torch.all(distances(clean, images)[16:] > 0.999 * radius[16:])
