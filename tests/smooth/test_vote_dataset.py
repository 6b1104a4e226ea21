"""A dataset's votes are each image's own votes, whatever the shards, the packing and the interruptions."""

import json
import threading
import time

import numpy as np
import pytest
from toy import Images, linear

from multiguard.data.sample import Sample
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.smooth import Smoother, vote_dataset
from multiguard.smooth.dataset import read_ahead
from multiguard.votes import read_votes


def smoother(**options) -> Smoother:
    return Smoother(linear(), **{"sigma": 0.5, "k_max": 3, "device": "cpu", "batch_size": 16, **options})


@pytest.mark.parametrize("shard_images", [1, 3, 100])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_votes_do_not_depend_on_shards_or_batches(tmp_path, shard_images, batch_size):
    images = Images(7)
    vote_dataset(smoother(batch_size=batch_size), images, tmp_path, draws=10, seed=4, shard_images=shard_images)
    votes = read_votes(tmp_path)
    assert list(votes.ids) == images.ids
    for position, sample in enumerate(images):
        alone = smoother().votes(sample.image, 10, seed=4, image_id=sample.id)
        assert np.array_equal(votes.ranked(position), alone)
        assert votes.labels[position] == sample.labels


def test_part_of_a_dataset_gets_the_same_votes(tmp_path):
    vote_dataset(smoother(), Images(6), tmp_path / "all", draws=10, seed=4)
    vote_dataset(smoother(), Images(2, first=3), tmp_path / "part", draws=10, seed=4)
    whole, part = read_votes(tmp_path / "all"), read_votes(tmp_path / "part")
    assert part.ids == whole.ids[3:5]
    assert all(np.array_equal(part.ranked(i), whole.ranked(3 + i)) for i in range(2))


class Failing(Images):
    """A dataset whose fifth image cannot be read, the first time."""

    broken = True

    def __getitem__(self, index: int, /) -> Sample:
        if self.broken and index == 4:
            raise DataError("image-4.jpg: cannot be decoded")
        return super().__getitem__(index)


def test_an_interrupted_run_goes_on_and_ends_with_the_same_votes(tmp_path):
    images = Failing(7)
    arguments = {"draws": 20, "seed": 0, "shard_images": 2}
    with pytest.raises(DataError, match="image-4"):
        vote_dataset(smoother(), images, tmp_path / "a", **arguments)
    whole_before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "a").glob("*.parquet")}
    assert 1 <= len(whole_before) <= 2
    images.broken = False
    vote_dataset(smoother(), images, tmp_path / "a", **arguments)
    vote_dataset(smoother(), Images(7), tmp_path / "b", **arguments)
    assert {n: (tmp_path / "a" / n).stat().st_mtime_ns for n in whole_before} == whole_before
    one, other = read_votes(tmp_path / "a"), read_votes(tmp_path / "b")
    assert all(np.array_equal(one.ranked(i), other.ranked(i)) for i in range(7))


def test_a_finished_run_draws_nothing_again(tmp_path):
    vote_dataset(smoother(), Images(3), tmp_path, draws=5, seed=0)
    calls: list[tuple[int, int]] = []
    vote_dataset(smoother(), Failing(3), tmp_path, draws=5, seed=0, progress=lambda *c: calls.append(c))
    assert calls == []


def test_progress_counts_images(tmp_path):
    calls: list[tuple[int, int]] = []
    vote_dataset(smoother(), Images(3), tmp_path, draws=5, seed=0, progress=lambda *c: calls.append(c))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("options", "arguments", "field"),
    [({"sigma": 0.25}, {}, "sigma"), ({"clamp": True}, {}, "clamp"), ({}, {"seed": 1}, "seed")],
)
def test_a_folder_of_other_parameters_is_refused(tmp_path, options, arguments, field):
    vote_dataset(smoother(), Images(3), tmp_path, draws=5, seed=0)
    with pytest.raises(VotesError, match=f"{field} differ"):
        vote_dataset(smoother(**options), Images(3), tmp_path, **{"draws": 5, "seed": 0, **arguments})


def test_the_manifest_holds_the_provenance(tmp_path):
    vote_dataset(smoother(clamp=True), Images(3), tmp_path, draws=5, seed=9)
    stored = json.loads((tmp_path / "manifest.json").read_text())["provenance"]
    expected = {
        "model": "linear",
        "output": "logits",
        "dataset": "generated",
        "sigma": 0.5,
        "draws": 5,
        "seed": 9,
        "k_max": 3,
        "noise": "philox4x64-box-muller",
        "precision": "float32",
        "channels_last": False,
        "compiled": False,
        "clamp": True,
        "image_ids": ["image-0", "image-1", "image-2"],
    }
    assert {key: stored[key] for key in expected} == expected
    assert set(stored["versions"]) >= {"multiguard", "torch", "numpy", "python"}


def test_labels_must_be_the_classifiers(tmp_path):
    other = Smoother(linear(labels=6), sigma=0.5, device="cpu")
    with pytest.raises(InvalidInputError, match=r"5 labels \(a, b, c, d, \.\.\.\) and 6 labels"):
        vote_dataset(other, Images(3), tmp_path, draws=5, seed=0)
    with pytest.raises(InvalidInputError, match="draws"):
        vote_dataset(smoother(), Images(3), tmp_path, draws=0, seed=0)


class Watched(Images):
    """Notes which image was asked for, and by which thread."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.asked: list[int] = []
        self.threads: set[int] = set()

    def __getitem__(self, index: int, /) -> Sample:
        self.asked.append(index)
        self.threads.add(threading.get_ident())
        return super().__getitem__(index)


def test_images_are_read_ahead_by_other_threads_but_not_all_at_once():
    images = Watched(100)
    samples = read_ahead(images, range(100), readers=2)
    assert next(samples).result().id == "image-0"
    deadline = time.monotonic() + 10
    while len(images.asked) < 9 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(images.asked) == list(range(9))
    assert threading.get_ident() not in images.threads
    assert [sample.result().id for sample in samples] == images.ids[1:]
