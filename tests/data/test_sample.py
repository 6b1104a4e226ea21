"""Random subsets and held-out parts of a dataset, and datasets decoded into one array."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from multiguard.data import DigitsDataset, Sample, hold_out, load_pixels, open_dataset, subset
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


def test_load_pixels():
    """Every image and label is there, in order."""
    dataset = DigitsDataset("val", images=20)
    pixels = load_pixels(dataset, workers=3)
    assert pixels.images.shape == (20, 3, 32, 32)
    for index, sample in enumerate(dataset):
        np.testing.assert_array_equal(pixels.images[index], sample.image)
        assert tuple(np.flatnonzero(pixels.targets[index])) == sample.labels


def test_different_sizes(tmp_path):
    """Images of different sizes are refused."""
    for name, size in (("a.png", 8), ("b.png", 9)):
        Image.new("L", (size, size)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\nb.png,x\n")
    with pytest.raises(DataError, match=r"b\.png: uint8 \(3, 9, 9\) among uint8 \(3, 8, 8\)"):
        load_pixels(open_dataset("folder", root=tmp_path, split="all"))


def test_float_image():
    """A float image is refused rather than truncated to integers."""

    class Float:
        name, label_names, ids, labels = "float", ("x",), ("0",), ((),)

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return Sample("0", np.full((3, 2, 2), 0.5, dtype=np.float32), ())

    with pytest.raises(DataError, match="float32"):
        load_pixels(Float())


def test_targets_of_wrong_shape():
    """Targets that do not fit the labels are refused."""
    pixels = load_pixels(DigitsDataset("val", images=4))
    with pytest.raises(DataError, match=r"targets \(4, 10\) and 4 ids; expected \(4, 3\)"):
        replace(pixels, label_names=("a", "b", "c"))
