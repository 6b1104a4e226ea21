from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.train.runs import SMALL, backbone
from torch import nn

from multiguard.models.denoiser import FFDNet
from multiguard.train.checkpoint import new_card
from multiguard.train.trainer import Average, Trainer, mean_average_precision, noisy_map, one_cycle


def test_one_cycle():
    """The learning rate rises from peak / 25 to the peak, then falls to peak / 10,000."""
    rates = [one_cycle(step, 100, 1e-3, warmup=0.1) for step in range(100)]
    assert rates[0] == pytest.approx(4e-5)
    assert int(np.argmax(rates)) == 10
    assert rates[10] == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(1e-7)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert one_cycle(0, 1, 1e-3) > 0
    assert one_cycle(0, 5, 1e-3, warmup=0) == 1e-3


def test_average():
    """The average follows weights and running statistics, faster in early steps."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = Average(module, decay=0.9)
    before = module[0].weight.detach().clone()
    with torch.no_grad():
        module[0].weight += 1
        module[1].running_mean += 2
    average.update(step=0)
    torch.testing.assert_close(average.module[0].weight, before + 0.9)
    torch.testing.assert_close(average.module[1].running_mean, torch.full((2,), 1.8))
    average.update(step=10**6)
    torch.testing.assert_close(average.module[0].weight, before + 0.91)
    assert not average.module.training
    assert not any(parameter.requires_grad for parameter in average.module.parameters())


def average_precision(scores, marks):
    """Precision at each positive, averaged: the definition for distinct scores."""
    order = np.argsort(-scores)
    hits = np.cumsum(marks[order])
    return float(np.mean((hits / np.arange(1, len(marks) + 1))[marks[order] == 1]))


def test_mean_average_precision():
    """mAP is the mean over the labels that occur, and nan without any."""
    rng = np.random.default_rng(0)
    scores, targets = rng.normal(size=(50, 6)), (rng.random((50, 6)) < 0.2).astype(np.uint8)
    targets[:, 2] = 0
    expected = np.mean([average_precision(scores[:, j], targets[:, j]) for j in (0, 1, 3, 4, 5)])
    assert mean_average_precision(scores, targets) == pytest.approx(expected)
    assert np.isnan(mean_average_precision(scores, np.zeros_like(targets)))


def test_noisy_map(val_pixels):
    """The noisy mAP is fixed by its seed and falls with noise."""
    probe = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 10)).eval()
    flat = torch.from_numpy(val_pixels.images).flatten(1).float() / 255
    with torch.no_grad():  # ridge regression: fits its 60 clean images exactly
        gram = flat @ flat.T + 1e-2 * torch.eye(60)
        probe[1].weight.copy_((flat.T @ torch.linalg.solve(gram, torch.from_numpy(val_pixels.targets).float())).T)
    clean, noisy = noisy_map(probe, val_pixels, 0.0), noisy_map(probe, val_pixels, 0.5, seed=1)
    assert clean > 0.99
    assert noisy < 0.9
    assert noisy == noisy_map(probe, val_pixels, 0.5, seed=1) != noisy_map(probe, val_pixels, 0.5, seed=2)


def classifier_input(pixels, val_pixels, sigma, denoiser):
    """What the classifier receives in one step."""
    hyperparameters, start = replace(SMALL, sigma=sigma, val_sigma=0.5), backbone()
    card = new_card(start, pixels, val_pixels, (16, 16), hyperparameters, denoiser, {})
    classifier = card.classifier(start.network)
    trainer = Trainer(classifier, pixels, val_pixels, hyperparameters, Accelerator(cpu=True), denoiser)
    inputs = []
    trainer.module.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
    batch = torch.from_numpy(pixels.images[:4].copy()), torch.from_numpy(pixels.targets[:4].copy())
    trainer.step(*batch, sigma, epoch=0, step=0, steps=1)
    return inputs[0]


def test_denoised_input(pixels, val_pixels):
    """Behind a denoiser, training sees what smoothing will see: denoised noisy images; clean ones as they are."""
    denoiser = FFDNet().eval()
    noisy = classifier_input(pixels, val_pixels, 0.5, None)
    with torch.no_grad():
        expected = denoiser(noisy, 0.5).clamp(0, 1)
    torch.testing.assert_close(classifier_input(pixels, val_pixels, 0.5, denoiser), expected)
    clean = classifier_input(pixels, val_pixels, 0.0, None)
    torch.testing.assert_close(classifier_input(pixels, val_pixels, 0.0, denoiser), clean)


def test_mixed_targets(pixels, val_pixels):
    """Mixed images are trained with the targets of both, in their parts."""
    hyperparameters, start, seen = replace(SMALL, cutmix=1.0), backbone(), []
    card = new_card(start, pixels, val_pixels, (16, 16), hyperparameters, None, {})
    trainer = Trainer(card.classifier(start.network), pixels, val_pixels, hyperparameters, Accelerator(cpu=True))
    trainer.loss = lambda logits, targets: seen.append(targets) or logits.square().mean()
    images, targets = torch.from_numpy(pixels.images[:8].copy()), torch.from_numpy(pixels.targets[:8].copy())
    trainer.step(images, targets, 0.25, epoch=0, step=0, steps=1)
    assert ((seen[0] > 0) & (seen[0] < 1)).any(1).sum() >= 5
    assert not torch.equal(seen[0], targets.float())
