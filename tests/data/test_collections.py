from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from multiguard.data import (
    DigitsDataset,
    Sample,
    check_dataset,
    hold_out,
    load_pixels,
    open_dataset,
    subset,
)
from multiguard.errors import DataError, InvalidInputError


def test_a_subset_is_seeded_keeps_ids_and_is_recorded():
    dataset = DigitsDataset("test", images=200)
    part = subset(dataset, 50, seed=3)
    assert part.name == "digits/test?seed=0[images=50,seed=3]"
    assert list(part.ids) == list(subset(dataset, 50, seed=3).ids) != list(subset(dataset, 50, seed=4).ids)
    assert len(set(part.ids)) == len(part) == 50
    position = list(dataset.ids).index(part.ids[7])
    np.testing.assert_array_equal(part[7].image, dataset[position].image)


def test_a_subset_is_not_the_head_of_the_dataset():
    positions = subset(DigitsDataset("test"), 100).positions
    assert max(positions) > 900
    assert min(positions) < 100


@pytest.mark.parametrize("images", [0, 11])
def test_a_subset_that_does_not_fit_is_refused(images):
    with pytest.raises(DataError, match=f"subset of {images} images was asked of 10"):
        subset(DigitsDataset(images=10), images)


def test_holding_out_divides_without_overlap():
    dataset = DigitsDataset(images=40)
    kept, held = hold_out(dataset, 0.25, seed=1)
    assert (len(kept), len(held)) == (30, 10)
    assert set(kept.ids) | set(held.ids) == set(dataset.ids)
    with pytest.raises(DataError, match="leaves a part empty"):
        hold_out(dataset, 0.001)


def test_open_dataset_knows_names_roots_and_options(tmp_path):
    assert len(open_dataset("digits", split="test", images=7, seed=2)) == 7
    with pytest.raises(DataError, match="unknown dataset 'coc': did you mean 'coco'"):
        open_dataset("coc", split="val")
    with pytest.raises(DataError, match="coco: no root folder given"):
        open_dataset("coco", split="val")
    with pytest.raises(DataError, match="unknown option 'difficulty': did you mean 'difficult'"):
        open_dataset("voc2007", root=tmp_path, split="val", difficulty=True)


@pytest.fixture
def ugly(tmp_path):
    """Six listed images of which one is cut short, one is missing and one has no label."""
    rows = ["file,labels"]
    for number in range(5):
        noise = np.random.default_rng(number).integers(0, 256, (30, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.jpg")
        rows.append(f"{number}.jpg,{'x' if number else ''}")
    cut = tmp_path / "2.jpg"
    cut.write_bytes(cut.read_bytes()[:300])
    (tmp_path / "labels.csv").write_text("\n".join([*rows, "gone.jpg,x;y"]))
    return open_dataset("folder", root=tmp_path, split="all")


def test_check_reports_every_problem_and_counts_the_rest(ugly):
    report = check_dataset(ugly)
    assert (report.images, report.readable) == (6, 4)
    assert [problem.id for problem in report.problems] == ["2.jpg", "gone.jpg"]
    assert "2.jpg: not a readable image" in report.problems[0].message
    assert report.frequencies == (3, 0)
    assert report.labels_per_image == {0: 1, 1: 3}
    assert report.shapes == {(30, 20): 4}
    assert report.empty_labels == ("y",)
    assert report.mean_labels == 0.75


def test_pixels_hold_every_image_and_label_in_order():
    dataset = DigitsDataset("val", images=20)
    pixels = load_pixels(dataset, workers=3)
    assert pixels.images.shape == (20, 3, 32, 32)
    for index, sample in enumerate(dataset):
        np.testing.assert_array_equal(pixels.images[index], sample.image)
        assert tuple(np.flatnonzero(pixels.targets[index])) == sample.labels


def test_loading_pixels_stops_at_a_image_that_cannot_be_read(ugly):
    with pytest.raises(DataError, match=r"2\.jpg"):
        load_pixels(ugly)


def test_pixels_of_different_sizes_are_refused(tmp_path):
    for name, size in (("a.png", 8), ("b.png", 9)):
        Image.new("L", (size, size)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\nb.png,x\n")
    with pytest.raises(DataError, match=r"b\.png: uint8 \(3, 9, 9\) among uint8 \(3, 8, 8\)"):
        load_pixels(open_dataset("folder", root=tmp_path, split="all"))


def test_cached_pixels_are_mapped_the_second_time_and_keyed_by_content(tmp_path):
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


def coloured(root, colours, labels):
    root.mkdir(parents=True, exist_ok=True)
    for name, colour in zip("ab", colours, strict=True):
        Image.new("RGB", (4, 4), (colour, 0, 0)).save(root / f"{name}.png")
    (root / "labels.csv").write_text("file,labels\na.png,{}\nb.png,{}\n".format(*labels))
    return open_dataset("folder", root=root, split="all")


def test_a_cache_never_answers_with_other_images_or_labels(tmp_path):
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


def test_pixels_whose_targets_do_not_fit_their_labels_are_refused():
    pixels = load_pixels(DigitsDataset("val", images=4))
    with pytest.raises(DataError, match=r"targets \(4, 10\) and 4 ids; expected \(4, 3\)"):
        replace(pixels, label_names=("a", "b", "c"))


def test_numbers_that_make_no_sense_are_refused():
    dataset = DigitsDataset(images=10)
    with pytest.raises(DataError, match="the seed is -1"):
        subset(dataset, 5, seed=-1)
    with pytest.raises(DataError, match="the seed is -1"):
        DigitsDataset(seed=-1)
    with pytest.raises(InvalidInputError, match="workers is 0"):
        load_pixels(dataset, workers=0)
    with pytest.raises(DataError, match="the size is -3"):
        open_dataset("digits", split="test", size=-3)


def test_a_part_knows_its_labels_and_origins():
    dataset = DigitsDataset(images=10)
    part = subset(dataset, 4)
    assert list(part.labels) == [sample.labels for sample in part]
    assert [dataset.origins.index(origin) for origin in part.origins] == list(part.positions)


def test_a_float_image_is_refused_rather_than_truncated():
    class Float:
        name, label_names, ids, labels = "float", ("x",), ("0",), ((),)

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return Sample("0", np.full((3, 2, 2), 0.5, dtype=np.float32), ())

    with pytest.raises(DataError, match="float32"):
        load_pixels(Float())
