"""Datasets decoded into one array, in memory and on disk."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tests.killer import Killer

from multiguard.data import DigitsDataset, Sample, load_pixels, open_dataset
from multiguard.errors import DataError


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


def test_cache(tmp_path):
    """The second call maps the cache; another seed or size has another entry."""
    dataset = DigitsDataset("val", images=6)
    first = load_pixels(dataset, cache=tmp_path)
    again = load_pixels(dataset, cache=tmp_path)
    assert isinstance(again.images, np.memmap)
    np.testing.assert_array_equal(first.images, again.images)
    other = load_pixels(DigitsDataset("val", images=6, seed=1), cache=tmp_path)
    assert not np.array_equal(other.images, first.images)
    bigger = load_pixels(DigitsDataset("val", images=6, size=48), cache=tmp_path)
    assert bigger.images.shape[-1] == 48
    assert len(list(tmp_path.iterdir())) == 3


def test_killed_cache(tmp_path, monkeypatch):
    """A kill before any change of a file leaves no wrong cache: the next call has the same images."""
    dataset, killer, calls = DigitsDataset("val", images=6), Killer(monkeypatch), 1
    expected = load_pixels(dataset).images
    while killer.run(lambda: load_pixels(dataset, cache=tmp_path / str(calls)), calls):
        np.testing.assert_array_equal(load_pixels(dataset, cache=tmp_path / str(calls)).images, expected)
        calls += 1
    assert calls > 3


def coloured(root, colours, labels):
    root.mkdir(parents=True, exist_ok=True)
    for name, colour in zip("ab", colours, strict=True):
        Image.new("RGB", (4, 4), (colour, 0, 0)).save(root / f"{name}.png")
    (root / "labels.csv").write_text("file,labels\na.png,{}\nb.png,{}\n".format(*labels))
    return open_dataset("folder", root=root, split="all")


def test_cache_of_edited_images(tmp_path):
    """The cache never returns other images or labels."""
    cache = tmp_path / "cache"
    load_pixels(coloured(tmp_path / "one" / "set", (10, 20), "xy"), cache=cache)
    elsewhere = load_pixels(coloured(tmp_path / "two" / "set", (30, 40), "xy"), cache=cache)
    assert list(elsewhere.images[:, 0, 0, 0]) == [30, 40]
    edited = load_pixels(coloured(tmp_path / "one" / "set", (50, 60), "yx"), cache=cache)
    assert list(edited.images[:, 0, 0, 0]) == [50, 60]
    assert edited.targets.tolist() == [[0, 1], [1, 0]]
    (tmp_path / "one" / "set" / "labels.csv").write_text("file,labels\na.png,x;y;z\nb.png,z\n")
    relabelled = load_pixels(open_dataset("folder", root=tmp_path / "one" / "set", split="all"), cache=cache)
    assert relabelled.targets.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert len(list(cache.iterdir())) == 3


def test_targets_of_wrong_shape():
    """Targets that do not fit the labels are refused."""
    pixels = load_pixels(DigitsDataset("val", images=4))
    with pytest.raises(DataError, match=r"targets \(4, 10\) and 4 ids; expected \(4, 3\)"):
        replace(pixels, label_names=("a", "b", "c"))
