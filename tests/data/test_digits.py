import itertools

import numpy as np
import pytest

from multiguard.data import DigitsDataset
from multiguard.errors import DataError


def same(a, b):
    return a.id == b.id and a.labels == b.labels and np.array_equal(a.image, b.image)


def test_canvas_determinism():
    """A canvas is a function of seed, split and index."""
    long, short = DigitsDataset("train"), DigitsDataset("train", images=5)
    assert all(same(long[i], short[i]) for i in (4, 0, 3))
    assert not same(long[0], DigitsDataset("train", seed=1)[0])
    assert not np.array_equal(long[0].image, DigitsDataset("val")[0].image)


def test_disjoint_splits():
    """No source digit is in two splits, whatever the seed."""
    used = {
        split: {p.source for i in range(400) for p in DigitsDataset(split, seed=seed).layout(i)}
        for split, seed in (("train", 0), ("val", 3), ("test", 8))
    }
    assert all(not used[a] & used[b] for a, b in itertools.combinations(used, 2))
    assert len(used["train"]) > 500


def test_no_overlap_on_canvas():
    """The digits of a canvas differ and never overlap."""
    dataset = DigitsDataset("train", size=33)
    counts = set()
    for index in range(300):
        layout = dataset.layout(index)
        covered = np.zeros((33, 33), dtype=int)
        for p in layout:
            covered[p.top : p.top + p.side, p.left : p.left + p.side] += 1
        assert covered.max() == 1
        assert covered.sum() == sum(p.side**2 for p in layout)
        assert len({p.label for p in layout}) == len(layout)
        counts.add(len(layout))
    assert counts == {1, 2, 3, 4}


def test_labels_of_canvas():
    """The labels are the digits on the canvas."""
    dataset = DigitsDataset("val", images=50)
    for index, sample in enumerate(dataset):
        assert sample.labels == tuple(sorted(p.label for p in dataset.layout(index))) == dataset.labels[index]
        assert sample.image.shape == (3, 32, 32)
        assert sample.image.max() > 200
        inked = {(p.top, p.left, p.side) for p in dataset.layout(index)}
        blank = sample.image.copy()
        for top, left, side in inked:
            blank[:, top : top + side, left : left + side] = 0
        assert blank.max() == 0


def test_bad_digit_arguments():
    """An unknown split and a canvas that is too small are refused."""
    with pytest.raises(DataError, match="did you mean 'train'"):
        DigitsDataset("training")
    with pytest.raises(DataError, match="at least 16"):
        DigitsDataset(size=8)
