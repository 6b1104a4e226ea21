"""Votes of every kind are read back as they were written, and none is read as another."""

import gc
import sys

import numpy as np
import pytest
from tests.votes.vote_runs import ADAPTIVE, KINDS, THRESHOLD, UNLABELLED, provenance, row, same, shard_path, write

from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.votes import Votes, VotesWriter, read_votes

RUN = provenance()


@pytest.mark.parametrize(("kind", "labels"), [*((kind, 20) for kind in KINDS), ("top-k", 65536), ("threshold", 257)])
def test_round_trip(tmp_path, kind, labels):
    """What is written is read back."""
    run = provenance(labels=labels, **KINDS[kind])
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    assert (votes.provenance, votes.ids, len(votes)) == (run, run.image_ids, 5)
    assert (votes.rule, votes.adaptive) == (run.rule, run.stops is not None)
    for position in range(len(votes)):
        found, expected = votes.row(position, adaptive=votes.adaptive), row(run, position)
        assert (found.image_id, found.labels) == (expected.image_id, expected.labels)
        assert found.image_hash == expected.image_hash == votes.image_hashes[position]
        assert same(found.votes, expected.votes)
        assert same(found.pilot, expected.pilot)
        assert same(found.bare, expected.bare)
        assert found.draws == expected.draws == votes.draws_of(position)


def test_memory(tmp_path):
    """Images whose votes are not read are in columns: a thousand more of them are hardly more objects."""

    def objects(images):
        folder = tmp_path / str(images)
        write(folder, provenance(images=images), shard_images=100)
        gc.collect()
        before = sys.getallocatedblocks()
        votes = read_votes(folder)
        gc.collect()
        assert len(votes) == images
        return sys.getallocatedblocks() - before

    objects(100)  # what is imported and cached at first
    assert objects(2000) - objects(1000) < 500


def test_rows_together(tmp_path):
    """Images that are read together, some of two shards, are those that are read one by one."""
    run = provenance(images=40)
    write(tmp_path, run, shard_images=25)
    votes = read_votes(tmp_path).subset({name for number, name in enumerate(run.image_ids) if number % 3})
    found = list(votes.rows())
    assert [one.image_id for one in found] == list(votes.ids)
    for position, one in enumerate(found):
        assert same(one.votes, votes.row(position).votes)
        assert same(one.votes, row(run, run.image_ids.index(one.image_id)).votes)


def test_unfinished_run(tmp_path):
    """An unfinished run is read only on request, and its checksum covers what was read."""
    write(tmp_path, RUN, shards=[0, 2])
    with pytest.raises(VotesError, match="holds 2 of 3 shards: its run has not finished"):
        read_votes(tmp_path)
    votes = read_votes(tmp_path, partial=True)
    assert votes.ids == (*RUN.image_ids[:2], RUN.image_ids[4])
    assert np.array_equal(votes.ranked(2), row(RUN, 4).ranked)
    shard_path(tmp_path, 2).unlink()
    assert read_votes(tmp_path, partial=True).manifest_hash != votes.manifest_hash


def test_threshold_votes_as_ranks(tmp_path):
    """Votes of the threshold rule are never read as ranks."""
    run = provenance(pilot_draws=5, **THRESHOLD)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    assert np.array_equal(votes.hits(1), row(run, 1).votes.hits())
    with pytest.raises(VotesError, match=r"threshold rule.*--rule threshold"):
        votes.ranked(1)


def test_ranked_votes_as_sets(tmp_path):
    """Ranked votes are never read as sets."""
    run = provenance(pilot_draws=5)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    with pytest.raises(VotesError, match=r"top-k rule.*k and k_prime"):
        votes.hits(1)


@pytest.mark.parametrize("rule", [{}, THRESHOLD])
def test_adaptive_votes_as_fixed(tmp_path, rule):
    """Adaptive votes are never read as if n were fixed."""
    run = provenance(pilot_draws=5, **ADAPTIVE, **rule)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    read = votes.hits if rule else votes.ranked
    for one in (read, votes.row, lambda _: list(votes)):
        with pytest.raises(VotesError, match=r"adaptive run.*only the method 'betting'"):
            one(0)
    assert [len(read(position, adaptive=True)) for position in range(5)] == [2, 4, 7, 2, 4]


def test_what_a_run_lacks(tmp_path):
    """Labels that a run does not have are refused."""
    write(tmp_path / "unlabelled", provenance(**UNLABELLED))
    with pytest.raises(VotesError, match=r"no ground truth.*--no-labels"):
        _ = read_votes(tmp_path / "unlabelled").labels


def test_exchange_after_opening(tmp_path):
    """A shard that is replaced after the folder was opened is refused; the open one is held in memory."""
    for name, run in (("votes", RUN), ("other", provenance(noise_seed=5))):
        write(tmp_path / name, run)
    votes = read_votes(tmp_path / "votes")
    before = votes.ranked(0)
    for index in range(3):
        shard_path(tmp_path / "other", index).replace(shard_path(tmp_path / "votes", index))
    assert np.array_equal(votes.ranked(1), row(RUN, 1).ranked)
    with pytest.raises(VotesError, match=r"votes-00001.parquet is damaged"):
        votes.ranked(3)
    assert np.array_equal(votes.ranked(0), before)
    shard_path(tmp_path / "votes", 2).unlink()
    with pytest.raises(VotesError, match=r"votes-00002.parquet cannot be read: No such file"):
        votes.ranked(4)


@pytest.mark.parametrize("kind", ["pilot", "threshold", "adaptive"])
def test_votes_in_memory(tmp_path, kind):
    """Votes in memory are like votes in a folder, failures and subsets included."""
    run = provenance(**KINDS[kind])
    rows, failure = [row(run, position) for position in (0, 2, 3, 4)], ImageFailure(run.image_ids[1], "unreadable")
    writer = VotesWriter(tmp_path, run, shard_images=5)
    writer.write(0, rows, [failure])
    made, read = Votes.of(run, rows, [failure]), read_votes(tmp_path)
    kept = {run.image_ids[position] for position in (1, 2, 4)}
    for one, other in ((made, read), (made.subset(kept), read.subset(kept))):
        for name in ("provenance", "ids", "labels", "image_hashes", "failures"):
            assert getattr(one, name) == getattr(other, name), name
        for mine, theirs in zip(one.rows(adaptive=True), other.rows(adaptive=True), strict=True):
            assert same(mine.votes, theirs.votes)
            assert same(mine.pilot, theirs.pilot)
    assert made.manifest_hash == Votes.of(run, rows, [failure]).manifest_hash
    assert made.manifest_hash != Votes.of(run, rows, [ImageFailure(failure.image_id, "else")]).manifest_hash
    with pytest.raises(InvalidInputError, match="must hold the images"):
        Votes.of(run, rows)
