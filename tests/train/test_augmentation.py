import numpy as np
import pytest
import torch
from scipy import stats

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Uniform
from multiguard.certify.noise import HIDDEN
from multiguard.train.augmentation import add_noise, augment, cutmix


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_noise_statistics():
    """Noise has its standard deviation, is drawn for each image, and is not clamped."""
    noise = add_noise(torch.full((8, 3, 64, 64), 0.5), Gaussian(0.25), seeded()) - 0.5
    assert float(noise.mean()) == pytest.approx(0, abs=0.005)
    assert float(noise.std()) == pytest.approx(0.25, rel=0.01)
    assert abs(float(np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1])) < 0.05
    assert float(noise.max()) > 0.75


def test_sigma_range():
    """With a largest sigma each image has its own, log-uniform in the range, and Gaussian noise of it."""
    noise = add_noise(torch.zeros(2000, 1, 32, 32), Gaussian(0.12), seeded(), 2.0)
    place = (noise.std((1, 2, 3)).double() / 0.12).log() / np.log(2 / 0.12)
    assert stats.kstest(place.numpy(), stats.uniform(-0.005, 1.01).cdf).pvalue > 1e-4
    assert stats.kstest((noise[0] / noise[0].std()).flatten().numpy(), stats.norm.cdf).pvalue > 1e-4


def test_uniform_noise():
    """Uniform noise fills its interval, and is drawn for each value."""
    noise = add_noise(torch.full((8, 3, 64, 64), 0.5), Uniform(0.25), seeded()) - 0.5
    assert stats.kstest(noise.flatten().numpy(), stats.uniform(-0.25, 0.5).cdf).pvalue > 1e-4
    assert abs(float(np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1])) < 0.05


def test_hidden_pixels():
    """An ablation keeps this number of pixels of each image, in all channels or none, anywhere, and no others."""
    images = torch.rand(2000, 3, 4, 5)
    noisy = add_noise(images, PixelAblation(6, 20), seeded())
    hidden = noisy == HIDDEN
    assert torch.equal(hidden.sum((2, 3)), torch.full((2000, 3), 14))
    assert torch.equal(hidden.all(1), hidden.any(1))
    assert torch.equal(noisy[~hidden], images[~hidden])
    kept = (~hidden[:, 0]).sum(0).flatten().numpy()
    assert all(stats.binomtest(int(count), 2000, 6 / 20).pvalue > 1e-4 for count in kept)


def test_hidden_columns():
    """An ablation of bands keeps one of them in each image, each as often as any other."""
    images = torch.rand(2000, 3, 4, 5)
    noisy = add_noise(images, BandAblation(2, 5), seeded())
    kept = (noisy != HIDDEN)[:, 0, 0]
    assert torch.equal(noisy[noisy != HIDDEN], images[noisy != HIDDEN])
    assert torch.equal(kept.sum(1), torch.full((2000,), 2))
    starts = (kept & ~kept.roll(1, 1)).int().argmax(1).bincount(minlength=5).numpy()
    assert stats.chisquare(starts).pvalue > 1e-4


def test_flip():
    """About half of the images are mirrored, exactly; the others stay as they are."""
    images = torch.rand(200, 3, 6, 6)
    out = augment(images, seeded(), crop=1, flip=True)
    mirrored = (out - images.flip(-1)).abs().amax((1, 2, 3)) < 1e-5
    same = (out - images).abs().amax((1, 2, 3)) < 1e-5
    assert bool((mirrored ^ same).all())
    assert 70 < int(mirrored.sum()) < 130


def test_shift():
    """Images move by any number of pixels up to the largest shift, and black fills in."""
    images = torch.zeros(300, 3, 9, 9)
    images[:, :, 4, 4] = 1
    out = augment(images, seeded(), crop=1, shift=2, flip=False)
    spots = {tuple(spot) for spot in (out[:, 0] > 0.5).nonzero()[:, 1:].tolist()}
    assert spots == {(row, column) for row in range(2, 7) for column in range(2, 7)}
    torch.testing.assert_close(out.sum((2, 3)), torch.ones(300, 3), atol=1e-3, rtol=0)


def test_crop():
    """Crops lie inside the image, keep the least area, and differ in size."""
    ramp = torch.linspace(0, 1, 64).expand(64, 64)
    images = torch.stack((ramp, ramp.T, torch.ones(64, 64))).expand(200, 3, 64, 64)
    out = augment(images, seeded(), crop=0.5, flip=False)
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
    first, again = (augment(images, seeded(3), crop=0.5, flip=True) for _ in range(2))
    torch.testing.assert_close(first, again, atol=0, rtol=0)
    assert not torch.allclose(first[0], first[1])


def test_colour():
    """Brightness, contrast and saturation are scaled by up to the given fraction; about one image in twenty is grey."""
    stripes = torch.tensor([0.4, 0.5]).expand(400, 3, 4, 2)
    red = torch.tensor([0.5, 0.4, 0.4]).view(3, 1, 1).expand(400, 3, 4, 4)
    grey, coloured = augment(stripes, seeded(), colour=0.4), augment(red, seeded(), colour=0.4)  # with the same draws
    brightness = grey.mean((1, 2, 3)) / 0.45
    contrast = (grey[:, 0, 0, 1] - grey[:, 0, 0, 0]) / 0.1 / brightness
    saturation = (coloured[:, 0] - coloured[:, 1])[:, 0, 0] / 0.1 / brightness / contrast
    lost = saturation == 0
    assert 8 <= int(lost.sum()) <= 34  # 20 expected, standard deviation 4.4
    for scale in (brightness, contrast, saturation[~lost]):
        assert 0.599 < float(scale.min()) < 0.65
        assert 1.35 < float(scale.max()) < 1.401
    assert (
        abs(np.corrcoef(torch.stack((brightness, contrast, saturation))[:, ~lost].numpy())[np.triu_indices(3, 1)]).max()
        < 0.2
    )


def test_colour_range():
    """Values stay within [0, 1], and 0 returns the images themselves."""
    images = torch.rand(50, 3, 8, 8, generator=seeded(1))
    out = augment(images, seeded(), crop=1, flip=False, colour=1.0)
    assert out.min() == 0
    assert out.max() == 1
    assert augment(images, seeded(), crop=1, flip=False) is images


def test_cutmix():
    """A box of 10 to 50 % of some images comes from another one, and the targets mix by exactly that area."""
    count = 300
    values = torch.arange(count) / count
    images = values.view(-1, 1, 1, 1).expand(-1, 3, 20, 20)
    out, targets = cutmix(images, torch.eye(count), 0.5, seeded())
    foreign = out[:, 0] != values.view(-1, 1, 1)
    area = foreign.float().mean((1, 2))
    mixed = area > 0
    assert 110 < int(mixed.sum()) < 190
    assert area[mixed].min() > 0.06
    assert area.max() < 0.56
    assert area[mixed].std() > 0.05
    corners = set()
    for image in torch.nonzero(mixed).flatten().tolist():
        source = round(float(out[image, 0][foreign[image]][0]) * count)
        assert targets[image, source] == pytest.approx(float(area[image]))
        rows, columns = foreign[image].any(1), foreign[image].any(0)
        assert torch.equal(foreign[image], rows[:, None] & columns)
        corners.add((int(rows.int().argmax()), int(columns.int().argmax())))
    assert len(corners) > 50
    torch.testing.assert_close(targets.diagonal(), 1 - area)


def test_no_cutmix():
    """Probability 0 returns the tensors themselves and draws nothing."""
    images, targets, generator = torch.rand(2, 3, 4, 4), torch.eye(2), seeded()
    out = cutmix(images, targets, 0.0, generator)
    assert out[0] is images
    assert out[1] is targets
    assert torch.equal(torch.rand(1, generator=generator), torch.rand(1, generator=seeded()))
