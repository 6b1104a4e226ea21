import copy

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.train.runs import SMALL, KilledError, backbone, fit, kill_after
from torch import nn

from multiguard.certify import Gaussian
from multiguard.models.networks import DenoisingNetwork, UNet
from multiguard.models.torch_model import TorchClassifier
from multiguard.train.checkpoint import new_card
from multiguard.train.trainer import (
    Average,
    Feed,
    Trainer,
    epoch_indices,
    mean_average_precision,
    noisy_map,
    one_cycle,
)


def test_epoch_indices():
    """An epoch reads each image at most once, in another order per epoch, and ranks divide its batches."""
    batches = epoch_indices(103, 10, seed=1, epoch=4)
    assert [len(batch) for batch in batches] == [10] * 10
    assert len(set(np.concatenate(batches))) == 100
    parts = [epoch_indices(103, 10, seed=1, epoch=4, rank=rank, world=2) for rank in range(2)]
    for batch, first, second in zip(batches, *parts, strict=True):
        assert sorted(batch) == sorted([*first, *second])
    assert [list(b) for b in batches] != [list(b) for b in epoch_indices(103, 10, seed=1, epoch=5)]
    assert len(epoch_indices(7, 10, seed=0, epoch=0)[0]) == 7


@pytest.mark.parametrize("resident", [True, False])
def test_feed_batches(pixels, resident):
    """A feed gives the requested images, whether it holds or streams them; without requests it gives none."""
    indices = [np.array([3, 1, 7]), np.array([0, 11])]
    feed = Feed(pixels, torch.device("cpu"), resident)
    for (images, targets), index in zip(feed.batches(indices), indices, strict=True):
        np.testing.assert_array_equal(images.numpy(), pixels.images[index])
        np.testing.assert_array_equal(targets.numpy(), pixels.targets[index])
    assert list(feed.batches([])) == []


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
    noise = Gaussian(0.5)
    clean, noisy = noisy_map(probe, val_pixels, None), noisy_map(probe, val_pixels, noise, seed=1)
    assert clean > 0.99
    assert noisy < 0.9
    assert noisy == noisy_map(probe, val_pixels, noise, seed=1) != noisy_map(probe, val_pixels, noise, seed=2)


def make_trainer(pixels, val_pixels, config, network, *, teacher=None):
    start = backbone(network)
    classifier = new_card(start, pixels, val_pixels, (16, 16), config, {}).classifier(network).module()
    return Trainer(classifier, pixels, val_pixels, config, Accelerator(cpu=True), teacher)


def first_batch(pixels):
    return torch.from_numpy(pixels.images[:8].copy()), torch.from_numpy(pixels.targets[:8].copy())


def test_mixed_targets(pixels, val_pixels):
    """Mixed images are trained with the targets of both, in their parts."""
    trainer, seen = make_trainer(pixels, val_pixels, SMALL.replace(cutmix=1.0), backbone().network), []
    trainer.loss = lambda logits, targets: seen.append(targets) or logits.square().mean()
    images, targets = first_batch(pixels)
    trainer.step(images, targets, Gaussian(0.25), epoch=0, step=0, steps=1)
    assert ((seen[0] > 0) & (seen[0] < 1)).any(1).sum() >= 5
    assert not torch.equal(seen[0], targets.float())


def test_teacher(pixels, val_pixels):
    """The loss mixes that of the labels with the cross-entropy to a teacher's scores of the images without noise."""
    seen, images = [], first_batch(pixels)

    def teach(clean):
        seen.append(clean)
        return clean[:, 0, 0, :10] * 4 - 2

    losses = []
    teacher = TorchClassifier(teach, None, name="pixels")
    for distill in (0.0, 0.25, 1.0):
        torch.manual_seed(0)
        trainer = make_trainer(
            pixels, val_pixels, SMALL.replace(distill=distill, shift=0), backbone().network, teacher=teacher
        )
        inputs = []
        trainer.module.register_forward_hook(lambda _, given, out, to=inputs: to.append((given[0], out[0].detach())))
        losses.append(trainer.step(*images, Gaussian(0.25), epoch=0, step=0, steps=1))
    noisy, logits = inputs[0]
    torch.testing.assert_close(seen[0], images[0].float() / 255)
    assert float((noisy - seen[0]).std()) == pytest.approx(0.25, rel=0.05)
    wanted = (seen[0][:, 0, 0, :10] * 4 - 2).sigmoid()
    expected = nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(1).mean()
    torch.testing.assert_close(losses[2], expected)
    torch.testing.assert_close(losses[1], 0.75 * losses[0] + 0.25 * losses[2])


@pytest.mark.parametrize(("name", "size"), [("adam", 1.0), ("adamw", 0.99)])
def test_optimizers(pixels, val_pixels, name, size):
    """Where nothing has a gradient, AdamW shrinks weights by lr times the decay, and Adam by steps of the lr's size."""
    config = SMALL.replace(optimizer=name, weight_decay=0.1, lr=0.1, warmup=0.0)
    trainer = make_trainer(pixels, val_pixels, config, backbone().network)
    before = [parameter.detach().clone() for parameter in trainer.network.parameters()]
    for parameter in trainer.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer.step()
    for old, new in zip(before, trainer.network.parameters(), strict=True):
        if old.ndim == 1:
            assert torch.equal(old, new)
        elif name == "adamw":
            torch.testing.assert_close(new, size * old)
        else:
            torch.testing.assert_close((new - old).abs(), torch.full_like(old, 0.1), atol=1e-3, rtol=0)


def denoising_trainer(pixels, val_pixels, pool=1, **more):
    torch.manual_seed(0)
    network = DenoisingNetwork(UNet(8, pool), backbone().network)
    config = SMALL.replace(noise="gaussian:0.5", epochs=3, denoise_epochs=1, **more)
    return make_trainer(pixels, val_pixels, config, network), network


def test_denoiser_alone(pixels, val_pixels):
    """The first epochs train the U-Net alone, by its squared error in normalised units; then both are trained."""
    trainer, network = denoising_trainer(pixels, val_pixels, shift=0)
    images, targets = first_batch(pixels)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    inputs = []
    handle = network.denoiser.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
    loss = trainer.step(images, targets, Gaussian(0.5), epoch=0, step=0, steps=1)
    handle.remove()
    reference = DenoisingNetwork(UNet(8), backbone().network)
    reference.load_state_dict(before)
    clean = (images.float() / 255 - 0.5) / 0.5
    torch.testing.assert_close(loss, (reference.train().denoiser(inputs[0]) - clean).square().mean())
    assert float((inputs[0] - clean).std()) == pytest.approx(1.0, rel=0.03)  # 0.5 / 0.5
    changed = {
        name.split(".")[0] for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert changed == {"denoiser"}
    between = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    trainer.step(images, targets, Gaussian(0.5), epoch=1, step=0, steps=1)
    changed = {
        name.split(".")[0] for name, tensor in network.state_dict().items() if not torch.equal(tensor, between[name])
    }
    assert changed == {"denoiser", "network"}


@pytest.mark.parametrize("pool", [1, 2])
def test_denoising_weight(pixels, val_pixels, pool):
    """The U-Net's squared error, from the means of pool x pool clean pixels, is added to the loss with its weight."""
    losses, inputs = [], []
    for weight in (0.0, 2.0):
        trainer, network = denoising_trainer(pixels, val_pixels, pool, shift=0, denoise_weight=weight)
        start = copy.deepcopy(network.denoiser)
        network.denoiser.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
        losses.append(trainer.step(*first_batch(pixels), Gaussian(0.5), epoch=1, step=0, steps=1))
    clean = (first_batch(pixels)[0].float() / 255 - 0.5) / 0.5
    means = sum(clean[..., y::pool, x::pool] for y in range(pool) for x in range(pool)) / pool**2
    error = (start.train()(inputs[-1]) - means).square().mean()
    torch.testing.assert_close(losses[1], losses[0] + 2 * error)


def test_two_cycles(pixels, val_pixels):
    """The learning rate has a cycle for the U-Net alone, and another one for the epochs after it."""
    trainer, _ = denoising_trainer(pixels, val_pixels)
    rates = []
    for epoch, step in ((0, 0), (0, 9), (1, 0), (2, 9)):
        trainer.step(*first_batch(pixels), Gaussian(0.5), epoch=epoch, step=step, steps=10)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    expected = [one_cycle(*place, SMALL.lr, SMALL.warmup) for place in ((0, 10), (9, 10), (0, 20), (19, 20))]
    assert rates == pytest.approx(expected)


def test_resumed_denoiser(tmp_path, pixels, val_pixels):
    """A run that is killed after the epoch of the U-Net is bit for bit the uninterrupted one."""

    def run(folder, **more):
        torch.manual_seed(0)
        start = backbone(DenoisingNetwork(UNet(4), backbone().network))
        return fit(pixels, val_pixels, SMALL.replace(epochs=2, denoise_epochs=1), folder, start=start, **more)

    whole = run(tmp_path / "one").card.weights_sha256
    with pytest.raises(KilledError):
        run(tmp_path / "two", on_epoch=kill_after(1))
    assert run(tmp_path / "two").card.weights_sha256 == whole
