"""Shards and their entries while a run goes on, its sealing, and images that failed."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.votes.vote_runs import provenance, reseal, row, write

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.files import file_checksum
from multiguard.io.records import checksum
from multiguard.pipeline.folders import discard_votes
from multiguard.votes import ImageFailure, VotesWriter, read_votes

RUN = provenance()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def whole(tmp_path):
    """The folder of a run that was never interrupted."""
    write(tmp_path / "whole", RUN)
    return contents(tmp_path / "whole")


@pytest.fixture
def half(tmp_path):
    """The folder of a run that has two of its three shards."""
    write(tmp_path / "half", RUN, shards=[0, 2])
    return tmp_path / "half"


def test_a_finished_run_is_one_manifest_and_its_shards(whole):
    assert sorted(whole) == ["manifest.json", "votes-00000.parquet", "votes-00001.parquet", "votes-00002.parquet"]


def test_an_unfinished_run_has_an_entry_for_each_shard(half):
    assert {path.stem for path in half.glob("*.parquet")} == {path.stem for path in half.glob("votes-*.json")}
    assert json.loads((half / "manifest.json").read_text())["shards"] is None
    assert read_votes(half, partial=True).ids == (*RUN.image_ids[:2], RUN.image_ids[4])


def test_the_manifest_is_written_once_while_the_run_goes_on(half):
    before = (half / "manifest.json").stat().st_mtime_ns
    VotesWriter(half, RUN, shard_images=2)
    assert (half / "manifest.json").stat().st_mtime_ns == before


def test_what_partial_votes_are_of_is_in_their_hash(tmp_path, half):
    before = read_votes(half, partial=True).manifest_hash
    (half / "votes-00002.json").unlink()
    assert read_votes(half, partial=True).manifest_hash != before


def killed_before_its_entry(folder):
    (folder / "votes-00002.json").unlink()


def killed_while_writing(folder):
    (folder / ".votes-00001.parquet.ab12.part").write_bytes(b"PAR1")
    (folder / ".votes-00001.json.ab12.part").write_bytes(b"{")
    (folder / ".manifest.json.ab12.part").write_bytes(b"{")


def killed_before_sealing(folder):
    written = VotesWriter._seal_if_complete
    VotesWriter._seal_if_complete = lambda self: None
    write(folder, RUN)
    VotesWriter._seal_if_complete = written
    assert len(list(folder.glob("votes-*.json"))) == 3
    with pytest.raises(VotesError, match="3 of 3 shards: its run has not ended"):
        read_votes(folder)


def killed_before_the_last_entry_went(folder):
    entry = (folder / "votes-00002.json").read_bytes()
    write(folder, RUN)
    (folder / "votes-00002.json").write_bytes(entry)
    assert len(read_votes(folder)) == 5


def shard_torn(folder):
    shard = folder / "votes-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-10])


def entry_torn(folder):
    entry = folder / "votes-00000.json"
    entry.write_text(entry.read_text()[:-10])


def shard_torn_after_sealing(folder):
    write(folder, RUN)
    shard_torn(folder)


def shard_gone_after_sealing(folder):
    write(folder, RUN)
    (folder / "votes-00001.parquet").unlink()


def manifest_gone(folder):
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    "accident",
    [
        killed_before_its_entry,
        killed_while_writing,
        killed_before_sealing,
        killed_before_the_last_entry_went,
        shard_torn,
        entry_torn,
        shard_torn_after_sealing,
        shard_gone_after_sealing,
        manifest_gone,
    ],
)
def test_after_any_accident_the_folder_ends_as_if_there_had_been_none(half, whole, accident):
    accident(half)
    write(half, RUN)
    assert contents(half) == whole


def test_a_kill_while_a_sealed_folder_is_reopened_loses_no_shard(tmp_path, half, whole, monkeypatch):
    shard_torn_after_sealing(half)
    written = []

    def dies(folder, index, *rest):
        written.append(index)
        raise SystemExit

    monkeypatch.setattr("multiguard.votes.writer.write_entry", dies)
    with pytest.raises(SystemExit):
        VotesWriter(half, RUN, shard_images=2)
    monkeypatch.undo()
    assert written == [1]
    assert VotesWriter(half, RUN, shard_images=2).missing() == [0]
    write(half, RUN)
    assert contents(half) == whole


def entry_edited(folder):
    entry = folder / "votes-00000.json"
    entry.write_text(entry.read_text().replace('"rows": 2', '"rows": 1'))


def entries_exchanged(folder):
    first, second = folder / "votes-00000.json", folder / "votes-00002.json"
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def shards_exchanged(folder):
    entries_exchanged(folder)
    first, second = folder / "votes-00000.parquet", folder / "votes-00002.parquet"
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def another_runs_shard(folder):
    other = folder.parent / "other"
    write(other, provenance(seed=5), shards=[0])
    for name in ("votes-00000.parquet", "votes-00000.json"):
        shutil.copy(other / name, folder / name)


def resealed_rows(folder):
    reseal(folder / "votes-00000.json", lambda stored: stored["shard"].update(rows=1))


def resealed_failures(folder):
    failures = [{"image_id": "image-é-0", "reason": "so they say"}]
    reseal(folder / "votes-00000.json", lambda stored: stored["shard"].update(failures=failures))


def resealed_nonsense(folder):
    reseal(folder / "votes-00000.json", lambda stored: stored["shard"].update(failures=[3]))


def beyond_the_run(folder):
    shutil.copy(folder / "votes-00000.json", folder / "votes-00003.json")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (shard_torn, r"votes-00000.parquet is damaged"),
        (entry_torn, r"votes-00000.json cannot be read"),
        (entry_edited, r"votes-00000.json was altered after it was written"),
        (entries_exchanged, r"names 'votes-00002.parquet' as shard 0"),
        (shards_exchanged, r"names 'votes-00002.parquet' as shard 0"),
        (another_runs_shard, r"votes-00000.json comes from another run"),
        (resealed_rows, r"votes-00000.parquet does not hold the 2 images of shard 0"),
        (resealed_failures, r"votes-00000.parquet does not hold the 2 images of shard 0"),
        (resealed_nonsense, r"votes-00000.json is damaged"),
        (beyond_the_run, r"votes-00003.json is no entry of this run, which has 3 shards"),
    ],
)
def test_damage_is_named_and_the_shard_is_made_anew(half, whole, damage, told):
    damage(half)
    with pytest.raises(VotesError, match=told):
        read_votes(half, partial=True)
    assert 0 in VotesWriter(half, RUN, shard_images=2).missing() or damage is beyond_the_run
    write(half, RUN)
    assert contents(half) == whole


def test_another_runs_manifest_is_refused(half, tmp_path):
    write(tmp_path / "other", provenance(seed=5), shards=[])
    shutil.copy(tmp_path / "other" / "manifest.json", half / "manifest.json")
    with pytest.raises(VotesError, match=r"votes-00000.json comes from another run"):
        read_votes(half, partial=True)
    write(tmp_path / "sealed", provenance(seed=5))
    shutil.copy(tmp_path / "sealed" / "manifest.json", half / "manifest.json")
    with pytest.raises(VotesError, match=r"votes-00000.parquet is damaged"):
        read_votes(half)
    assert read_votes(tmp_path / "sealed").ranked(0).tolist() == row(RUN, 0).ranked.tolist(), "the same votes"
    with pytest.raises(VotesError, match="another run: seed differs"):
        VotesWriter(half, RUN, shard_images=2)


FAILED = [
    ImageFailure("image-é-0", "it was torn"),
    ImageFailure("image-é-3", "it was empty"),
    ImageFailure("image-é-4", "it was huge"),
]


def with_failures(folder, **options):
    """A run whose first, fourth and last image failed, the last one all of its shard."""
    writer = VotesWriter(folder, RUN, shard_images=2, **options)
    for index in writer.missing():
        failures = [failure for failure in FAILED if failure.image_id in writer.manifest.ids(index)]
        left_out = {failure.image_id for failure in failures}
        rows = [row(RUN, position) for position in writer.manifest.positions(index)]
        writer.write(index, [each for each in rows if each.image_id not in left_out], failures)
    return writer


def test_failures_are_listed_and_have_no_votes(tmp_path):
    with_failures(tmp_path)
    votes = read_votes(tmp_path)
    assert votes.failures == tuple(FAILED)
    assert votes.ids == ("image-é-1", "image-é-2")
    assert [found.image_id for found in votes] == list(votes.ids)
    assert (votes.ranked(1) == row(RUN, 2).ranked).all()


def test_failures_stay_where_they_are_kept_and_are_tried_again_where_not(tmp_path, whole):
    with_failures(tmp_path / "some")
    assert VotesWriter(tmp_path / "some", RUN, shard_images=2).missing() == []
    assert VotesWriter(tmp_path / "some", RUN, shard_images=2, keep_failures=False).missing() == [0, 1, 2]
    assert read_votes(tmp_path / "some", partial=True).failures == tuple(FAILED)
    assert VotesWriter(tmp_path / "some", RUN, shard_images=2).missing() == []
    assert read_votes(tmp_path / "some").failures == tuple(FAILED)
    again = VotesWriter(tmp_path / "some", RUN, shard_images=2, keep_failures=False)
    for index in again.missing():
        again.write(index, [row(RUN, position) for position in again.manifest.positions(index)])
    assert contents(tmp_path / "some") == whole


@pytest.mark.parametrize(
    ("positions", "failures"),
    [
        ((0, 1), [ImageFailure("image-é-1", "an image too many")]),
        ((1,), [ImageFailure("image-é-0", "once"), ImageFailure("image-é-0", "twice")]),
        ((0,), [ImageFailure("stranger", "never heard of")]),
        ((), [ImageFailure("image-é-1", "the other way"), ImageFailure("image-é-0", "round")]),
        ((0,), []),
    ],
)
def test_rows_and_failures_must_be_the_images_of_the_shard(tmp_path, positions, failures):
    writer = VotesWriter(tmp_path, RUN, shard_images=2)
    with pytest.raises(InvalidInputError, match="shard 0 must hold the images"):
        writer.write(0, [row(RUN, position) for position in positions], failures)
    assert writer.missing() == [0, 1, 2]


def test_a_shard_says_which_run_it_is_of(half):
    """Its votes may be the very same as another run's; which noise they prove something about is not."""
    other = half.parent / "other"
    write(other, provenance(seed=5))
    write(half, RUN)
    shutil.copy(other / "votes-00000.parquet", half / "votes-00000.parquet")
    stored = json.loads((half / "manifest.json").read_text())
    stored["shards"]["0"]["sha256"] = file_checksum(half / "votes-00000.parquet")
    (half / "manifest.json").write_text(json.dumps({**stored, "sha256": checksum(stored)}))
    with pytest.raises(VotesError, match=r"votes-00000.parquet comes from another run"):
        read_votes(half)


def test_several_writers_fill_one_folder_and_the_main_one_seals_it(tmp_path, whole):
    main = VotesWriter(tmp_path / "many", RUN, shard_images=2)
    others = [VotesWriter(tmp_path / "many", RUN, shard_images=2, main=False) for _ in range(2)]
    for index, writer in enumerate([*others, main]):
        writer.write(index, [row(RUN, position) for position in writer.manifest.positions(index)])
    assert main.missing() == [0, 1]
    main.finish()
    assert contents(tmp_path / "many") == whole


def test_a_writer_that_would_write_other_votes_may_not_join(tmp_path):
    VotesWriter(tmp_path, RUN, shard_images=2)
    other = provenance(device="another GPU", versions={"torch": "1.0"})
    with pytest.raises(VotesError, match="not vote as the main one does: device and versions differ"):
        VotesWriter(tmp_path, other, shard_images=2, main=False)


def test_shards_that_nobody_wrote_stay_missing(half):
    main = VotesWriter(half, RUN, shard_images=2)
    main.finish()
    assert main.missing() == [1]
    with pytest.raises(VotesError, match="2 of 3 shards"):
        read_votes(half)


def test_entries_without_a_manifest_count_for_nothing(half, whole):
    """Their images may be others now: the name of the run tells only of the first one."""
    (half / "manifest.json").unlink()
    assert VotesWriter(half, RUN, shard_images=2).missing() == [0, 1, 2]
    write(half, RUN)
    assert contents(half) == whole


@pytest.mark.parametrize("shards", [[0, 2], [0, 1, 2]], ids=["unfinished", "finished"])
def test_what_is_left_of_a_removal_cut_short_has_a_manifest_or_no_entry(tmp_path, monkeypatch, shards):
    unlink = Path.unlink
    for moment in range(10):
        folder = tmp_path / str(moment)
        write(folder, RUN, shards=shards)
        left = iter(range(moment))
        monkeypatch.setattr(Path, "unlink", lambda path, left=left, **how: [next(left), unlink(path, **how)])
        with contextlib.suppress(StopIteration):
            discard_votes(folder)
        monkeypatch.undo()
        assert (folder / "manifest.json").exists() or not list(folder.glob("votes-*.json"))
    assert not list(folder.iterdir()), "at the last moment all is gone"


def swap_for_another_seeds(folder):
    other = folder.parent / "other"
    run = provenance(seed=5)
    writer = VotesWriter(other, run, shard_images=2)
    for index in writer.missing():
        rows = [row(run, position) for position in writer.manifest.positions(index)]
        writer.write(index, [replace(each, votes=each.ranked[::-1].copy()) for each in rows])
    for path in other.glob("*.parquet"):
        shutil.copy(path, folder / path.name)


def test_votes_that_are_exchanged_after_they_were_opened_are_refused(tmp_path):
    write(tmp_path / "votes", RUN)
    votes = read_votes(tmp_path / "votes")
    before = votes.ranked(0)
    swap_for_another_seeds(tmp_path / "votes")
    assert (votes.ranked(1) == row(RUN, 1).ranked).all(), "of the shard that is open the bytes are held"
    for position in (3, 4):
        with pytest.raises(VotesError, match=r"votes-0000\d.parquet is damaged"):
            votes.ranked(position)
    assert (votes.ranked(0) == before).all()
    (tmp_path / "votes" / "votes-00002.parquet").unlink()
    with pytest.raises(VotesError, match=r"votes-00002.parquet cannot be read: No such file"):
        votes.ranked(4)


def manifest_edited(text):
    return text.replace('"shard_images": 2', '"shard_images": 3')


def manifest_cut(text):
    return text[: len(text) // 2]


def manifest_emptied(text):
    return "{}"


@pytest.mark.parametrize("damage", [manifest_edited, manifest_cut, manifest_emptied])
@pytest.mark.parametrize("reader", [read_votes, lambda folder: VotesWriter(folder, RUN, shard_images=2)])
def test_a_damaged_manifest_is_refused_with_a_way_on(tmp_path, damage, reader):
    write(tmp_path, RUN)
    path = tmp_path / "manifest.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(VotesError, match=r"manifest.json .* Bring it back as it was, or vote with --force"):
        reader(tmp_path)
    discard_votes(tmp_path)
    write(tmp_path, RUN)
    assert len(read_votes(tmp_path)) == 5
