import numpy as np
import pytest
import torch

from multiguard.train.augmentation import add_noise, augment, derived_seed
from multiguard.train.hyperparameters import Hyperparameters


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_noise_statistics():
    """Noise has its standard deviation, is drawn for each image, and is not clamped."""
    noise = add_noise(torch.full((8, 3, 64, 64), 0.5), 0.25, seeded()) - 0.5
    assert float(noise.mean()) == pytest.approx(0, abs=0.005)
    assert float(noise.std()) == pytest.approx(0.25, rel=0.01)
    assert abs(float(np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1])) < 0.05
    assert float(noise.max()) > 0.75


def test_zero_noise():
    """Without noise the tensor itself is returned."""
    images = torch.rand(2, 3, 4, 4)
    assert add_noise(images, 0.0, seeded()) is images


def test_derived_seeds():
    """A seed depends on every part of the key, and on nothing else."""
    keys = [(0,), (0, 0), (0, 1), (1, 0), (0, 0, 1), (0, 1, 0)]
    assert len({derived_seed(*key) for key in keys}) == len(keys)
    assert derived_seed(3, 4) == derived_seed(3, 4)


def test_flip():
    """About half of the images are mirrored, exactly; the others stay as they are."""
    images = torch.rand(200, 3, 6, 6)
    out = augment(images, Hyperparameters(crop=1, flip=True), seeded())
    mirrored = (out - images.flip(-1)).abs().amax((1, 2, 3)) < 1e-5
    same = (out - images).abs().amax((1, 2, 3)) < 1e-5
    assert bool((mirrored ^ same).all())
    assert 70 < int(mirrored.sum()) < 130


def test_shift():
    """Images move by any number of pixels up to the largest shift, and black fills in."""
    images = torch.zeros(300, 3, 9, 9)
    images[:, :, 4, 4] = 1
    out = augment(images, Hyperparameters(crop=1, shift=2, flip=False), seeded())
    spots = {tuple(spot) for spot in (out[:, 0] > 0.5).nonzero()[:, 1:].tolist()}
    assert spots == {(row, column) for row in range(2, 7) for column in range(2, 7)}
    torch.testing.assert_close(out.sum((2, 3)), torch.ones(300, 3), atol=1e-3, rtol=0)


def test_crop():
    """Crops lie inside the image, keep the least area, and differ in size."""
    ramp = torch.linspace(0, 1, 64).expand(64, 64)
    images = torch.stack((ramp, ramp.T, torch.ones(64, 64))).expand(200, 3, 64, 64)
    out = augment(images, Hyperparameters(crop=0.5, flip=False), seeded())
    assert float(out[:, 2].min()) > 1 - 1e-5  # no border is darkened by what lies outside
    width = out[:, 0].mean(1)[:, -2] - out[:, 0].mean(1)[:, 1]
    height = out[:, 1].mean(2)[:, -2] - out[:, 1].mean(2)[:, 1]
    area = (width * height) * (64 / 61) ** 2
    assert float(area.min()) > 0.4
    assert float(area.max()) < 1.05
    assert float(area.std()) > 0.08


def test_augmentation_seed():
    """Augmentation is decided by the generator and differs between images."""
    images = torch.rand(1, 3, 16, 16).expand(4, 3, 16, 16)
    first, again = (augment(images, Hyperparameters(), seeded(3)) for _ in range(2))
    torch.testing.assert_close(first, again, atol=0, rtol=0)
    assert not torch.allclose(first[0], first[1])
