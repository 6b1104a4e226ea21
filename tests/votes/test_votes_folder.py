"""Votes come back as they were written, or not at all."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.votes.vote_runs import provenance, reseal, row, write

from multiguard.errors import InvalidInputError, VotesError
from multiguard.votes import VoteRow, VotesWriter, read_votes


@pytest.mark.parametrize("labels", [3, 256, 257, 65536])
def test_what_is_written_is_read_back(tmp_path, labels):
    run = provenance(labels=labels)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    assert votes.provenance == run
    assert votes.ids == run.image_ids
    assert len(votes) == 5
    for position, found in enumerate(votes):
        expected = row(run, position)
        assert found.image_id == expected.image_id
        assert found.labels == expected.labels == votes.labels[position]
        assert found.ranked.dtype == expected.ranked.dtype
        assert np.array_equal(found.ranked, expected.ranked)
        assert np.array_equal(votes.ranked(position), expected.ranked)


def test_one_image_is_read_without_the_others(tmp_path):
    write(tmp_path, provenance(), shard_images=5)
    file = pq.ParquetFile(tmp_path / "votes-00000.parquet")
    assert file.num_row_groups == 5
    assert file.metadata.row_group(0).column(3).compression == "ZSTD"


def test_few_draws_take_little_room(tmp_path):
    """Whatever Parquet would add to each row by itself must not outweigh the votes."""
    run = provenance(draws=1000, images=4, labels=10)
    write(tmp_path, run, shard_images=4)
    assert (tmp_path / "votes-00000.parquet").stat().st_size < 4 * 3000


def test_an_unfinished_run_is_refused_unless_asked_for(tmp_path):
    run = provenance()
    write(tmp_path, run, shards=[1])
    with pytest.raises(VotesError, match="1 of 3 shards"):
        read_votes(tmp_path)
    votes = read_votes(tmp_path, partial=True)
    assert votes.ids == run.image_ids[2:4]
    assert np.array_equal(votes.ranked(0), row(run, 2).ranked)


def test_a_run_is_taken_up_where_it_stopped(tmp_path):
    run = provenance()
    write(tmp_path, run, shards=[1])
    before = (tmp_path / "votes-00001.parquet").stat().st_mtime_ns
    assert VotesWriter(tmp_path, run, shard_images=2).missing() == [0, 2]
    write(tmp_path, run)
    assert (tmp_path / "votes-00001.parquet").stat().st_mtime_ns == before
    assert read_votes(tmp_path).ids == run.image_ids


def test_a_half_written_shard_is_never_read(tmp_path):
    run = provenance()
    write(tmp_path, run)
    shard = tmp_path / "votes-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(VotesError, match=r"votes-00001.parquet is damaged"):
        read_votes(tmp_path)
    assert VotesWriter(tmp_path, run, shard_images=2).missing() == [1]
    with pytest.raises(VotesError, match="2 of 3"):
        read_votes(tmp_path)
    write(tmp_path, run)
    assert len(read_votes(tmp_path)) == 5


def test_a_shard_that_the_manifest_does_not_name_is_not_read(tmp_path):
    run = provenance()
    write(tmp_path, run, shards=[0])
    (tmp_path / "votes-00001.parquet").write_bytes(b"PAR1 torn")
    assert len(read_votes(tmp_path, partial=True)) == 2
    assert VotesWriter(tmp_path, run, shard_images=2).missing() == [1, 2]


KILLED = """
import os, sys
import pyarrow.parquet as pq
sys.path[:0] = sys.argv[2:]
from vote_runs import provenance, write
real = pq.write_table
def dies(table, file, **options):
    file.write(b"PAR1 and then the power went")
    file.flush()
    os._exit(9)
write(sys.argv[1], provenance(), shards=[0])
pq.write_table = dies
write(sys.argv[1], provenance(), shards=[1])
"""


def test_a_process_that_dies_while_writing_leaves_nothing_to_be_read(tmp_path):
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, here], check=False)
    assert done.returncode == 9
    assert not (tmp_path / "votes-00001.parquet").exists()
    assert len(read_votes(tmp_path, partial=True)) == 2
    write(tmp_path, provenance())
    assert len(read_votes(tmp_path)) == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [("sigma", 0.25), ("seed", 2), ("draws", 8), ("weights_hash", "abc"), ("clamp", True), ("noise", "coin")],
)
def test_a_folder_of_another_run_is_refused(tmp_path, field, value):
    write(tmp_path, provenance(), shards=[0])
    with pytest.raises(VotesError, match=f"another run: {field} differ"):
        VotesWriter(tmp_path, provenance(**{field: value}), shard_images=2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"first_image_hash": "0"}, "the first image (size or content) differs"),
        ({"sigma": 0.25, "seed": 2}, "sigma and seed differ"),
        ({"sigma": 0.25, "seed": 2, "clamp": True}, "sigma, seed and clamp differ"),
    ],
)
def test_what_differs_reads_as_a_sentence(tmp_path, changes, told):
    write(tmp_path, provenance(), shards=[0])
    with pytest.raises(VotesError, match=re.escape(f"another run: {told}. Vote with --force")):
        VotesWriter(tmp_path, provenance(**changes), shard_images=2)


def test_a_run_without_a_whole_shard_gives_way(tmp_path):
    write(tmp_path, provenance(), shards=[])
    writer = VotesWriter(tmp_path, provenance(sigma=0.25), shard_images=1)
    assert (writer.manifest.provenance.sigma, writer.manifest.shard_images) == (0.25, 1)


def test_other_shards_are_another_run(tmp_path):
    write(tmp_path, provenance(), shards=[0])
    with pytest.raises(VotesError, match="shard_images"):
        VotesWriter(tmp_path, provenance(), shard_images=3)


def test_the_manifest_says_what_was_run(tmp_path):
    write(tmp_path, provenance())
    stored = json.loads((tmp_path / "manifest.json").read_text())
    assert (stored["format"], stored["version"]) == ("multiguard-votes", 3)
    assert stored["provenance"]["seed"] == 1 << 70
    assert [shard["rows"] for shard in stored["shards"].values()] == [2, 2, 1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "cannot be read"),
        (lambda text: "[]", "damaged"),
        (lambda text: text.replace('"sigma"', '"signal"'), "altered"),
        (lambda text: text.replace('"version": 3', '"version": 2'), "version 2"),
        (lambda text: text.replace("votes-00000.parquet", "../votes-00000.parquet"), "altered"),
    ],
)
def test_a_damaged_manifest_is_said(tmp_path, damage, message):
    write(tmp_path, provenance())
    manifest = tmp_path / "manifest.json"
    manifest.write_text(damage(manifest.read_text()))
    with pytest.raises(VotesError, match=message):
        read_votes(tmp_path)


def alter(folder, change) -> None:
    reseal(folder / "manifest.json", change)


@pytest.mark.parametrize(
    ("name", "value"), [("sigma", 5.0), ("draws", 6), ("look_fractions", [1.0]), ("labelled", False)]
)
def test_a_manifest_that_was_edited_is_refused(tmp_path, name, value):
    run = provenance()
    write(tmp_path, run)
    manifest = tmp_path / "manifest.json"
    stored = json.loads(manifest.read_text())
    stored["provenance"][name] = value
    manifest.write_text(json.dumps(stored))
    with pytest.raises(VotesError, match=r"manifest.json was altered after it was written"):
        read_votes(tmp_path)
    with pytest.raises(VotesError, match=r"manifest.json was altered after it was written"):
        VotesWriter(tmp_path, run, shard_images=2)


def test_a_manifest_of_many_shards_vouches_for_itself(tmp_path):
    write(tmp_path, provenance(images=12), shard_images=1)
    assert len(read_votes(tmp_path)) == 12


def test_a_manifest_that_names_a_shard_twice_is_refused(tmp_path):
    run = provenance()
    write(tmp_path, run)
    alter(tmp_path, lambda stored: stored["shards"].update({"1": stored["shards"]["0"]}))
    with pytest.raises(VotesError, match=r"names 'votes-00000.parquet' as shard 1, which lies in votes-00001.parquet"):
        read_votes(tmp_path)
    assert VotesWriter(tmp_path, run, shard_images=2).missing() == [1]


def test_a_shard_beyond_the_run_does_not_stand_for_one_that_is_missing(tmp_path):
    write(tmp_path, provenance())
    alter(tmp_path, lambda stored: stored["shards"].update({"7": {**stored["shards"].pop("2"), "rows": 0}}))
    with pytest.raises(VotesError, match="has not ended"):
        read_votes(tmp_path)
    with pytest.raises(VotesError, match="names shard 7 of a run of 3"):
        read_votes(tmp_path, partial=True)


def test_a_shard_outside_of_the_folder_is_not_read(tmp_path):
    write(tmp_path, provenance())
    alter(tmp_path, lambda stored: stored["shards"]["0"].update(file="../votes-00000.parquet"))
    with pytest.raises(VotesError, match=r"names '../votes-00000.parquet' as shard 0"):
        read_votes(tmp_path)


def test_image_ids_that_were_altered_are_refused(tmp_path):
    write(tmp_path, provenance())
    alter(tmp_path, lambda stored: stored["provenance"]["image_ids"].reverse())
    with pytest.raises(VotesError, match="does not hold"):
        read_votes(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("draws", 6, "has 7 draws, where 6 belong"),
        ("k_max", 2, "21 bytes of votes, where 7 draws of 2 labels"),
        ("k_max", 4, "where 7 draws of 4 labels"),
        ("label_names", ["only", "two"], r"outside 0 \.\. 1"),
        ("label_names", ["many"] * 300, "where 7 draws of 3 labels"),
    ],
)
def test_votes_that_are_not_as_the_manifest_says_are_refused(tmp_path, field, value, message):
    write(tmp_path, provenance())
    alter(tmp_path, lambda stored: stored["provenance"].update({field: value}))
    with pytest.raises(VotesError, match=message):
        read_votes(tmp_path).ranked(0)


def test_as_many_votes_in_another_shape_are_refused(tmp_path):
    write(tmp_path, provenance())
    alter(tmp_path, lambda stored: stored["provenance"].update({"draws": 3, "k_max": 7}))
    with pytest.raises(VotesError, match="7 draws, where 3 belong"):
        read_votes(tmp_path).ranked(0)


def test_a_folder_without_manifest_is_said(tmp_path):
    with pytest.raises(VotesError, match="not a votes folder"):
        read_votes(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: VoteRow("stranger", r.labels, r.ranked), "must hold the images"),
        (lambda r: VoteRow(r.image_id, (20,), r.ranked), "'image-é-0' cannot be stored: it has a label index"),
        (lambda r: VoteRow(r.image_id, r.labels, r.ranked + np.uint8(20)), "label index"),
        (lambda r: VoteRow(r.image_id, r.labels, r.ranked[:3]), "3 draws, where 7 belong"),
        (lambda r: VoteRow(r.image_id, r.labels, r.ranked[:, :2]), "shape"),
        (lambda r: VoteRow(r.image_id, r.labels, r.ranked.astype(np.uint16)), "uint16"),
    ],
)
def test_rows_that_do_not_belong_are_refused(tmp_path, change, message):
    run = provenance()
    writer = VotesWriter(tmp_path, run, shard_images=1)
    with pytest.raises(InvalidInputError, match=message):
        writer.write(0, [change(row(run, 0))])
    assert writer.missing() == [0, 1, 2, 3, 4]


def test_two_images_of_one_id_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="share their noise"):
        VotesWriter(tmp_path, provenance(image_ids=("a", "a")))


def test_a_folder_of_another_run_is_left_as_it_is(tmp_path):
    write(tmp_path, provenance(), shards=[0])
    (tmp_path / "votes-00001.json").write_text("torn")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(VotesError, match="another run"):
        VotesWriter(tmp_path, provenance(seed=1), shard_images=2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("code", ["import multiguard.votes", "import multiguard.smooth"])
def test_votes_need_no_torch(code):
    """The second case shows that the first can fail."""
    block = "import sys; sys.modules['torch'] = None\n"
    done = subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (code == "import multiguard.votes"), done.stderr
