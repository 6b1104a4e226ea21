"""A manifest or a shard that was damaged, edited or exchanged is refused by name."""

import shutil
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from tests.votes.vote_runs import (
    KINDS,
    edit_cell,
    edit_manifest,
    edit_metadata,
    provenance,
    row,
    shard_path,
    write,
)

from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.io.files import file_checksum
from multiguard.votes import Manifest, VotesWriter, read_votes
from multiguard.votes.folder import discard_votes
from multiguard.votes.shards import Shard, load_manifest, write_shard

RUN = provenance()


def test_manifest(tmp_path):
    """The manifest holds what was run, and at the end every shard."""
    write(tmp_path, RUN, shards=[0])
    assert load_manifest(tmp_path) == Manifest(RUN, 2)
    write(tmp_path, RUN)
    manifest = load_manifest(tmp_path)
    assert (manifest.provenance, manifest.provenance.noise_seed) == (RUN, 1 << 70)
    assert [manifest.ids(shard) for shard in range(3)] == [list(RUN.image_ids[at : at + 2]) for at in (0, 2, 4)]
    assert len(manifest.shards) == manifest.shard_count == 3


def opens_writer(folder):
    return VotesWriter(folder, RUN, shard_images=2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "Expecting value"),
        (lambda text: text[: len(text) // 2], "line"),
        (lambda text: "[]", "expected `object`"),
        (lambda text: "{}", "checksum is missing"),
        (lambda text: text.replace('"noise"', '"voice"'), "edited after"),
        (lambda text: text.replace('"draws": 7', '"draws": 6'), "edited after"),
        (lambda text: text.replace('"shard_images": 2', '"shard_images": 3'), "edited after"),
        (lambda text: text.replace('"version": 7', '"version": 6'), "version 6; this multiguard reads"),
    ],
)
def test_damaged_manifest(tmp_path, damage, message):
    """A damaged manifest is refused by readers and writers, with a way to fix it."""
    write(tmp_path, RUN)
    path = tmp_path / "manifest.json"
    path.write_text(damage(path.read_text()))
    for reader in (read_votes, opens_writer):
        with pytest.raises(VotesError, match=rf"manifest.json cannot be read: .*{message}.* Restore it, or vote with"):
            reader(tmp_path)
    discard_votes(tmp_path)
    assert len(list(tmp_path.iterdir())) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stored: stored["shards"].pop(), "2 shards, expected 3"),
        (lambda stored: stored["shards"].append(stored["shards"][0]), "4 shards, expected 3"),
        (lambda stored: stored["shards"][0].update(file="../votes-00000.parquet"), r"shards\[0\]: unknown key 'file'"),
        (lambda stored: stored["shards"][0].update(failures=[3]), r"shards\[0\].failures\[0\]: expected `object`"),
        (lambda stored: stored.update(shard_images=0), "shard_images must be at least 1"),
        (lambda stored: stored["provenance"].update(image_ids=["a"] * 5), "image ids must be distinct"),
        (lambda stored: stored["provenance"]["image_ids"].reverse(), "does not hold the 2 images of shard 0"),
        (lambda stored: stored["shards"][1]["failures"].append(FAILURE), "does not hold the 2 images of shard 1"),
        (lambda stored: stored["provenance"].update(draws=6), "has 7 draws, expected 6"),
        (lambda stored: stored["provenance"].update(draws=3, k_max=7), "has 7 draws, expected 3"),
        (lambda stored: stored["provenance"].update(k_max=2), "21 bytes of votes, expected 7 draws of 2 labels"),
        (lambda stored: stored["provenance"].update(label_names=["only", "two"]), r"outside 0 \.\. 1"),
        (lambda stored: stored["provenance"].update(label_names=["many"] * 300), "expected 7 draws of 3 labels"),
    ],
)
def test_forged_manifest(tmp_path, change, message):
    """A manifest that was edited with the right checksums is refused where it disagrees with its shards."""
    write(tmp_path, RUN)
    edit_manifest(tmp_path, change)
    with pytest.raises(VotesError, match=message):
        read_votes(tmp_path).ranked(0)


FAILURE = {"image_id": RUN.image_ids[2], "reason": "it was claimed"}


def truncated(folder):
    path = shard_path(folder, 0)
    path.write_bytes(path.read_bytes()[:-10])


def one_byte(folder):
    content = bytearray(shard_path(folder, 0).read_bytes())
    content[content.index(row(RUN, 1).votes.tobytes())] ^= 1  # a few bytes are not compressed
    shard_path(folder, 0).write_bytes(content)


def exchanged(folder):
    first, last = shard_path(folder, 0), shard_path(folder, 2)
    content = first.read_bytes()
    first.write_bytes(last.read_bytes())
    last.write_bytes(content)


def another_run(folder):
    """Its votes may be the very same; the noise about which they prove something is not."""
    write(folder.parent / "other", provenance(noise_seed=5))
    shutil.copy(shard_path(folder.parent / "other", 0), shard_path(folder, 0))


def junk(folder):
    shard_path(folder, 0).write_bytes(b"PAR1 junk")


def several_rows_together(folder):
    table = pq.read_table(shard_path(folder, 0))
    pq.write_table(table, shard_path(folder, 0), row_group_size=2)


DAMAGES = {
    truncated: "votes-00000.parquet is damaged",
    one_byte: "votes-00000.parquet is damaged",
    junk: "votes-00000.parquet is damaged",
    several_rows_together: "votes-00000.parquet is damaged: .* not one image in each row group",
    exchanged: "votes-00000.parquet does not hold the 2 images of shard 0",
    another_run: "votes-00000.parquet comes from another run",
    lambda folder: edit_metadata(folder, 0, index=1): "does not hold the 2 images of shard 0",
    lambda folder: edit_metadata(folder, 0, failures=[FAILURE]): "does not hold the 2 images of shard 0",
    lambda folder: edit_metadata(folder, 0, failures=[3]): r"damaged: failures\[0\]: expected `object`",
    lambda folder: edit_metadata(folder, 0, version=3): "damaged: .*version 3",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_shard(tmp_path, damage):
    """A shard that is damaged, edited or exchanged is refused by name while the run is unfinished."""
    folder = tmp_path / "votes"
    write(folder, RUN, shards=[0, 2])
    assert len(read_votes(folder, partial=True)) == 3
    damage(folder)
    with pytest.raises(VotesError, match=DAMAGES[damage]):
        read_votes(folder, partial=True)


@pytest.mark.parametrize("damage", [one_byte, exchanged, another_run])
def test_damaged_shard_of_a_finished_run(tmp_path, damage):
    """A finished run knows the checksum of every file."""
    folder = tmp_path / "votes"
    write(folder, RUN)
    damage(folder)
    with pytest.raises(VotesError, match=r"votes-00000.parquet is damaged: it has another checksum"):
        read_votes(folder)
    shard_path(folder, 0).unlink()
    with pytest.raises(VotesError, match=r"votes-00000.parquet cannot be read: No such file"):
        read_votes(folder)


@pytest.mark.parametrize(
    ("kind", "column", "change", "message"),
    [
        ("threshold", "votes", lambda v: v[:-1], "20 bytes of votes, expected 7 draws of sets of 20 labels"),
        ("adaptive", "draws", lambda v: 3, r"3 draws, expected one of the stops \(2, 4, 7\)"),
        ("pilot", "pilot", lambda v: None, "no pilot draws, expected 5"),
        ("top-k", "bare", lambda v: v + v, "6 bytes of votes, expected 1 draws of 3"),
        ("adaptive", "labels", lambda v: [20], r"outside 0 \.\. 19"),
        ("top-k", "labels", lambda v: None, "lacks its id, its labels or its draws"),
    ],
)
def test_forged_row(tmp_path, kind, column, change, message):
    """A row that does not fit its run is refused even where every checksum is right."""
    write(tmp_path, provenance(**KINDS[kind]))
    edit_cell(tmp_path, column, change)
    edit_manifest(tmp_path, lambda stored: None)
    with pytest.raises(VotesError, match=f"image-é-0.*{message}|{message}.*image-é-0"):
        read_votes(tmp_path).row(0, adaptive=True)


def test_forged_empty_row_group(tmp_path):
    """The votes of an image are not taken for the next one's, where an empty row group shifts them."""
    write(tmp_path, RUN)
    path = shard_path(tmp_path, 0)
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        for start, stop in ((0, 0), (0, 1), (1, 2)):
            writer.write_table(table.slice(start, stop - start))
    manifest = load_manifest(tmp_path)
    replace(manifest, shards=(Shard(file_checksum(path)), *manifest.shards[1:])).save(tmp_path)
    with pytest.raises(VotesError, match="not one image in each row group"):
        read_votes(tmp_path).ranked(1)


@pytest.mark.parametrize(
    ("positions", "failures"),
    [
        ((0, 1), [ImageFailure("image-é-1", "an image too many")]),
        ((1,), [ImageFailure("image-é-0", "once"), ImageFailure("image-é-0", "twice")]),
        ((0,), [ImageFailure("stranger", "unknown")]),
        ((), [ImageFailure("image-é-1", "the other way"), ImageFailure("image-é-0", "round")]),
        ((0,), []),
        ((1, 0), []),
    ],
)
def test_images_of_a_shard(tmp_path, positions, failures):
    """Rows and failures together must be exactly the images of the shard."""
    with pytest.raises(InvalidInputError, match="must hold the images"):
        write_shard(tmp_path, Manifest(RUN, 2), 0, [row(RUN, position) for position in positions], failures)
    assert not list(tmp_path.iterdir())


def test_row_that_cannot_be_stored(tmp_path):
    """A row that does not fit the run is refused with the id of its image."""
    other = row(provenance(draws=6), 0)
    with pytest.raises(InvalidInputError, match="image 'image-é-0' cannot be stored: it has 6 draws, expected 7"):
        write_shard(tmp_path, Manifest(RUN, 1), 0, [other], ())
