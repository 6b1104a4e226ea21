"""A dataset's votes are each image's own votes, whatever the shards, the packing and the interruptions."""

import json
import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from toy import Images, linear

from multiguard.data import image_hash
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.models import load, torch_model
from multiguard.smooth import Smoother, vote_dataset
from multiguard.smooth.dataset import ImageReader, VoteRun
from multiguard.votes import read_votes


def smoother(**options) -> Smoother:
    return Smoother(linear(), **{"sigma": 0.5, "k_max": 3, "device": "cpu", "batch_size": 16, **options})


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("shard_images", [1, 3, 100])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_shards_and_batches(tmp_path, shard_images, batch_size):
    """Votes and labels do not depend on shards or batches."""
    images = Images(7)
    vote_dataset(smoother(batch_size=batch_size), images, tmp_path, draws=10, noise_seed=4, shard_images=shard_images)
    votes = read_votes(tmp_path)
    assert list(votes.ids) == images.ids
    for position, sample in enumerate(images):
        alone = smoother().votes(sample.image, 10, noise_seed=4, image_id=sample.id)
        assert np.array_equal(votes.ranked(position), alone)
        assert votes.labels[position] == sample.labels


def test_resume(tmp_path):
    """An interrupted run resumes without touching finished shards, and ends with the same files."""
    options = {"draws": 20, "noise_seed": 0, "shard_images": 2}
    with pytest.raises(DataError, match=r"4\.jpg"):
        vote_dataset(smoother(), Images(7, unreadable={4}), tmp_path / "a", **options)
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "a").glob("*.parquet")}
    assert 1 <= len(before) <= 2
    vote_dataset(smoother(), Images(7), tmp_path / "a", **options)
    vote_dataset(smoother(), Images(7), tmp_path / "b", **options)
    assert {name: (tmp_path / "a" / name).stat().st_mtime_ns for name in before} == before
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_random_seed(tmp_path):
    """Without a seed each new run draws its own and records it; its votes follow from that seed."""
    for name in ("a", "b"):
        vote_dataset(smoother(), Images(3), tmp_path / name, draws=5)
    seeds = [read_votes(tmp_path / name).provenance.noise_seed for name in ("a", "b")]
    assert seeds[0] != seeds[1]
    vote_dataset(smoother(), Images(3), tmp_path / "again", draws=5, noise_seed=seeds[0])
    assert contents(tmp_path / "again") == contents(tmp_path / "a")


@pytest.mark.parametrize("seed", [None, 6])
def test_resume_without_seed(tmp_path, seed):
    """Without a seed an interrupted run resumes with the recorded one; another given seed is another run."""
    options = {"draws": 20, "shard_images": 2}
    with pytest.raises(DataError, match=r"4\.jpg"):
        vote_dataset(smoother(), Images(7, unreadable={4}), tmp_path / "a", **options, noise_seed=seed)
    vote_dataset(smoother(), Images(7), tmp_path / "a", **options)
    drawn = read_votes(tmp_path / "a").provenance.noise_seed
    assert seed in (None, drawn)
    vote_dataset(smoother(), Images(7), tmp_path / "b", **options, noise_seed=drawn)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    with pytest.raises(VotesError, match="another run: noise_seed differs"):
        vote_dataset(smoother(), Images(7), tmp_path / "a", **options, noise_seed=drawn + 1)


@pytest.mark.parametrize(
    ("options", "arguments", "field"),
    [({"sigma": 0.25}, {}, "noise"), ({"clamp": True}, {}, "clamp"), ({}, {"noise_seed": 1}, "noise_seed")],
)
def test_other_run(tmp_path, options, arguments, field):
    """A folder of another run is refused, unless the caller discards it; the same run is never discarded."""
    one, arguments = smoother(**options), {"draws": 5, "noise_seed": 0, **arguments}
    vote_dataset(smoother(), Images(3), tmp_path, draws=5, noise_seed=0)
    with pytest.raises(VotesError, match=f"{field} differ"):
        vote_dataset(one, Images(3), tmp_path, **arguments)
    discarded: list[str] = []

    def discard(folder) -> None:
        discarded.append(read_votes(folder).provenance.model)
        for path in folder.glob("[!.]*"):
            path.unlink()

    for _ in range(2):
        VoteRun(one, Images(3), **arguments).write(tmp_path, discard=discard)
        assert len(read_votes(tmp_path)) == 3
        assert discarded == ["linear"]


def test_seed_of_another_run(tmp_path):
    """A run that replaces another draws its own seed: the recorded one may be known by now."""
    vote_dataset(smoother(sigma=0.25), Images(3), tmp_path, draws=5)
    known = read_votes(tmp_path).provenance.noise_seed
    with pytest.raises(VotesError, match="another run: noise differs"):
        vote_dataset(smoother(), Images(3), tmp_path, draws=5)
    VoteRun(smoother(), Images(3), draws=5).write(tmp_path, discard=lambda folder: (folder / "manifest.json").unlink())
    assert read_votes(tmp_path).provenance.noise_seed != known


def test_provenance_in_manifest(tmp_path):
    """The manifest holds the provenance."""
    vote_dataset(smoother(clamp=True), Images(3), tmp_path, draws=np.int64(5), noise_seed=np.int64(9))
    stored = json.loads((tmp_path / "manifest.json").read_text())["provenance"]
    expected = {
        "model": "linear",
        "output": "logits",
        "dataset": "generated",
        "noise": "gaussian:0.5",
        "draws": 5,
        "noise_seed": 9,
        "k_max": 3,
        "noise_source": "philox4x64-box-muller",
        "precision": "float32",
        "channels_last": False,
        "compiled": False,
        "clamp": True,
        "image_ids": ["image-0", "image-1", "image-2"],
    }
    assert {key: stored[key] for key in expected} == expected
    assert set(stored["versions"]) >= {"multiguard", "torch", "numpy", "python"}


@pytest.mark.parametrize(
    ("name", "value"), [("readers", 0), ("readers", 1.5), ("draws", 5.0), ("draws", 0), ("noise_seed", 0.5)]
)
def test_refused_arguments(tmp_path, name, value):
    """An argument that makes no sense is refused by its name before anything is written."""
    with pytest.raises(InvalidInputError, match=f"^{name} must be .*{value!r}"):
        vote_dataset(smoother(), Images(2), tmp_path / "votes", **{"draws": 5, "noise_seed": 0, name: value})
    assert not (tmp_path / "votes").exists()


def test_read_ahead():
    """Images are decoded ahead by other threads, but not all at once."""
    images = Images(100)
    decode, threads = images.__getitem__, set()

    class Watched(Images):
        def __getitem__(self, index):
            threads.add(threading.get_ident())
            return decode(index)

    reader = ImageReader(Watched(100), readers=2, record=False, pixels=True)
    samples = reader.samples(range(100))
    assert next(samples).id == "image-0"
    deadline = time.monotonic() + 10
    while len(images.reads) < 9 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(images.reads) == list(range(9))
    threads.discard(threading.get_ident())  # it decoded the first image, to identify the run
    assert len(threads) > 0
    assert [sample.id for sample in samples] == images.ids[1:]


def test_one_decode_per_image(tmp_path, monkeypatch):
    """A run decodes each image once and hashes the weights once for its record."""
    calls = Counter()

    def counted(name, function, *args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)

    monkeypatch.setattr(torch_model, "state_checksum", lambda module: "")
    monkeypatch.setattr(torch_model, "state_hash", partial(counted, "hash", torch_model.state_hash))
    images = Images(7)
    vote_dataset(smoother(), images, tmp_path, draws=5, noise_seed=0, shard_images=2)
    assert sorted(images.reads) == list(range(7))
    assert calls == {"hash": 2}, "for the record, and before the first vote"
    images.reads.clear()
    vote_dataset(smoother(), images, tmp_path, draws=5, noise_seed=0, shard_images=2)
    assert images.reads == [0], "the image that identifies the run"
    assert calls == {"hash": 3}


def test_rows_of_a_table(tmp_path):
    """Arrays are voted on as they are, with the hash of every row; data without labels needs pilot draws."""
    rows = np.random.default_rng(0).normal(3.0, 2.0, (4, 5)).astype(np.float32)
    smoother = Smoother(load(lambda x: x.clone(), labels=list("abcde"), name="rows"), 0.5, device="cpu")
    vote_dataset(smoother, (rows, [[0], ["b", "c"], [], [4]]), tmp_path, draws=10, noise_seed=0)
    votes = read_votes(tmp_path)
    assert votes.labels == ((0,), (1, 2), (), (4,))
    assert list(votes.image_hashes) == [image_hash(row) for row in rows]
    with pytest.raises(InvalidInputError, match="holds no labels"):
        vote_dataset(smoother, (rows, None), tmp_path / "unlabelled", draws=10)
