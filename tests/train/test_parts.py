import numpy as np
import pytest
import torch
from torch import nn

from multiguard.data import DigitsDataset, load_pixels
from multiguard.errors import InvalidInputError
from multiguard.train import Augmentation, augment, hyperparameters_for, mean_average_precision, noisy_map
from multiguard.train.ema import Average
from multiguard.train.feed import Feed, epoch_positions
from multiguard.train.noise import add_noise, derived_seed, ramped_sigma
from multiguard.train.schedule import one_cycle


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_noise_has_its_deviation_and_its_own_draw_everywhere():
    noise = add_noise(torch.full((8, 3, 64, 64), 0.5), 0.25, seeded()) - 0.5
    assert float(noise.mean()) == pytest.approx(0, abs=0.005)
    assert float(noise.std()) == pytest.approx(0.25, rel=0.01)
    assert abs(float(np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1])) < 0.05
    assert float(noise.max()) > 0.75


def test_no_noise_is_the_image_itself():
    images = torch.rand(2, 3, 4, 4)
    assert add_noise(images, 0.0, seeded()) is images


def test_seeds_depend_on_every_part_of_the_key():
    keys = [(0,), (0, 0), (0, 1), (1, 0), (0, 0, 1), (0, 1, 0)]
    assert len({derived_seed(*key) for key in keys}) == len(keys)
    assert derived_seed(3, 4) == derived_seed(3, 4)


def test_sigma_climbs_in_a_straight_line():
    assert [ramped_sigma(1.0, epoch, 3) for epoch in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert ramped_sigma(0.5, 0, 0) == 0.5


def test_one_cycle_climbs_to_its_peak_and_falls_to_nearly_nothing():
    rates = [one_cycle(step, 100, 1e-3, warmup=0.1) for step in range(100)]
    assert rates[0] == pytest.approx(4e-5)
    assert int(np.argmax(rates)) == 10
    assert rates[10] == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(1e-7)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert one_cycle(0, 1, 1e-3) > 0


def test_flip_mirrors_about_half_of_the_images_exactly():
    images = torch.rand(200, 3, 6, 6)
    out = augment(images, Augmentation(least_area=1, flip=True), seeded())
    mirrored = (out - images.flip(-1)).abs().amax((1, 2, 3)) < 1e-5
    same = (out - images).abs().amax((1, 2, 3)) < 1e-5
    assert bool((mirrored ^ same).all())
    assert 70 < int(mirrored.sum()) < 130


def test_shift_moves_by_whole_pixels_and_fills_with_black():
    images = torch.zeros(300, 3, 9, 9)
    images[:, :, 4, 4] = 1
    out = augment(images, Augmentation(least_area=1, shift=2, flip=False), seeded())
    spots = {tuple(place) for place in (out[:, 0] > 0.5).nonzero()[:, 1:].tolist()}
    assert spots == {(row, column) for row in range(2, 7) for column in range(2, 7)}
    torch.testing.assert_close(out.sum((2, 3)), torch.ones(300, 3), atol=1e-3, rtol=0)


def test_crops_stay_inside_the_image_and_keep_the_least_area():
    ramp = torch.linspace(0, 1, 64).expand(64, 64)
    images = torch.stack((ramp, ramp.T, torch.ones(64, 64))).expand(200, 3, 64, 64)
    out = augment(images, Augmentation(least_area=0.5, flip=False), seeded())
    assert float(out[:, 2].min()) > 1 - 1e-5  # no border is darkened by what lies outside
    width = out[:, 0].mean(1)[:, -2] - out[:, 0].mean(1)[:, 1]
    height = out[:, 1].mean(2)[:, -2] - out[:, 1].mean(2)[:, 1]
    area = (width * height) * (64 / 61) ** 2
    assert float(area.min()) > 0.4
    assert float(area.max()) < 1.05
    assert float(area.std()) > 0.08


def test_augmentation_is_seeded_and_differs_by_image():
    images = torch.rand(1, 3, 16, 16).expand(4, 3, 16, 16)
    first, again = (augment(images, Augmentation(), seeded(3)) for _ in range(2))
    torch.testing.assert_close(first, again, atol=0, rtol=0)
    assert not torch.allclose(first[0], first[1])


def test_average_follows_weights_and_running_statistics():
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


def test_an_epoch_reads_each_image_at_most_once_and_ranks_share_batches():
    whole = epoch_positions(103, 10, seed=1, epoch=4)
    assert [len(batch) for batch in whole] == [10] * 10
    assert len(set(np.concatenate(whole))) == 100
    parts = [epoch_positions(103, 10, seed=1, epoch=4, rank=rank, world=2) for rank in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):
        assert sorted(batch) == sorted([*first, *second])
    assert [list(b) for b in whole] != [list(b) for b in epoch_positions(103, 10, seed=1, epoch=5)]
    assert len(epoch_positions(7, 10, seed=0, epoch=0)[0]) == 7


@pytest.mark.parametrize("resident", [True, False])
def test_feed_gives_the_images_asked_for_however_it_holds_them(resident, tmp_path):
    pixels = load_pixels(DigitsDataset("val", images=12), cache=tmp_path)
    positions = [np.array([3, 1, 7]), np.array([0, 11])]
    for (images, targets), where in zip(
        Feed(pixels, torch.device("cpu"), resident).batches(positions), positions, strict=True
    ):
        np.testing.assert_array_equal(images.numpy(), pixels.images[where])
        np.testing.assert_array_equal(targets.numpy(), pixels.targets[where])


@pytest.mark.parametrize("resident", [True, False])
def test_a_rank_without_a_batch_is_given_none(resident):
    feed = Feed(load_pixels(DigitsDataset("val", images=4)), torch.device("cpu"), resident)
    assert list(feed.batches([])) == []


def average_precision(scores, marks):
    """Precision at each positive, averaged: the definition for distinct scores."""
    order = np.argsort(-scores)
    hits = np.cumsum(marks[order])
    return float(np.mean((hits / np.arange(1, len(marks) + 1))[marks[order] == 1]))


def test_map_is_the_mean_over_labels_that_occur():
    rng = np.random.default_rng(0)
    scores, targets = rng.normal(size=(50, 6)), (rng.random((50, 6)) < 0.2).astype(np.uint8)
    targets[:, 2] = 0
    expected = np.mean([average_precision(scores[:, j], targets[:, j]) for j in (0, 1, 3, 4, 5)])
    assert mean_average_precision(scores, targets) == pytest.approx(expected)
    assert np.isnan(mean_average_precision(scores, np.zeros_like(targets)))


def test_noisy_map_is_fixed_by_its_seed_and_falls_with_noise():
    pixels = load_pixels(DigitsDataset("val", images=150))
    torch.manual_seed(0)
    probe = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)).eval()
    flat = torch.from_numpy(pixels.images).flatten(1).float() / 255
    with torch.no_grad():  # ridge regression: knows its 150 clean images by heart
        gram = flat @ flat.T + 1e-2 * torch.eye(150)
        probe[1].weight.copy_((flat.T @ torch.linalg.solve(gram, torch.from_numpy(pixels.targets).float())).T)
    clean, noisy = noisy_map(probe, pixels, 0.0), noisy_map(probe, pixels, 0.5, seed=1)
    assert clean > 0.99
    assert noisy < 0.9
    assert noisy == noisy_map(probe, pixels, 0.5, seed=1) != noisy_map(probe, pixels, 0.5, seed=2)


def test_the_default_recipe_is_the_papers():
    recipe = hyperparameters_for("coco")
    assert (recipe.loss, recipe.lr, recipe.batch) == ("asl", 1e-3, 32)
    assert recipe.validation_sigma == recipe.sigma == 0.5
    assert hyperparameters_for("coco", sigma=0.0, val_sigma=0.5).validation_sigma == 0.5
    assert not hyperparameters_for("digits").flip
    assert hyperparameters_for("digits", flip=True, epochs=None).flip


BAD = [
    *[{"sigma": -1}, {"batch": 0}, {"crop": 0}, {"ema": 1}, {"clip": 0}, {"epochs": -1}, {"weight_decay": -1}],
    *[{"sigma": np.inf}, {"sigma": np.nan}, {"val_sigma": np.nan}, {"lr": np.inf}, {"seed": -1}, {"seed": 2**70}],
]


@pytest.mark.parametrize("bad", BAD)
def test_a_recipe_out_of_range_names_the_option(bad):
    (name,) = bad
    with pytest.raises(InvalidInputError, match=f"{name} is {bad[name]}; it must be"):
        hyperparameters_for("coco", **bad)


def test_an_unknown_recipe_option_names_the_nearest():
    with pytest.raises(InvalidInputError, match="did you mean 'epochs'"):
        hyperparameters_for("coco", epoch=3)
