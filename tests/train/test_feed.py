import numpy as np
import pytest
import torch

from multiguard.train.trainer import Feed, epoch_indices


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
