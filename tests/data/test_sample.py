"""Random subsets and held-out parts of a dataset."""

import numpy as np
import pytest

from multiguard.data import DigitsDataset, hold_out, subset
from multiguard.errors import DataError


def test_subset():
    """A subset is seeded, keeps its ids and records both numbers in its name."""
    dataset = DigitsDataset("test", images=200)
    part = subset(dataset, 50, seed=3)
    assert part.name == "digits test (seed 0), 50 random images (seed 3)"
    assert list(part.ids) == list(subset(dataset, 50, seed=3).ids) != list(subset(dataset, 50, seed=4).ids)
    assert len(set(part.ids)) == len(part) == 50
    position = list(dataset.ids).index(part.ids[7])
    np.testing.assert_array_equal(part[7].image, dataset[position].image)


@pytest.mark.parametrize("images", [0, 11])
def test_subset_of_wrong_size(images):
    """A subset of no images, or of more than there are, is refused."""
    with pytest.raises(DataError, match=f"{images} images requested; choose between 1 and 10"):
        subset(DigitsDataset(images=10), images)


def test_subset_labels_and_origins():
    """A subset knows its labels and origins."""
    dataset = DigitsDataset(images=10)
    part = subset(dataset, 4)
    assert list(part.labels) == [sample.labels for sample in part]
    assert [dataset.origins.index(origin) for origin in part.origins] == list(part.positions)


def test_hold_out():
    """Holding out divides a dataset without overlap."""
    dataset = DigitsDataset(images=40)
    kept, held = hold_out(dataset, 0.25, seed=1)
    assert (len(kept), len(held)) == (30, 10)
    assert set(kept.ids) | set(held.ids) == set(dataset.ids)
    with pytest.raises(DataError, match="leaves one part empty"):
        hold_out(dataset, 0.001)
