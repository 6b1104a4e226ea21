"""A votes folder after any accident ends as if there had been none."""

import re
import shutil

import pytest
from tests.votes.test_shards import DAMAGES, truncated
from tests.votes.vote_runs import KINDS, contents, provenance, row, shard_path, write

from multiguard.errors import ImageFailure, VotesError
from multiguard.votes import VotesWriter, read_votes
from multiguard.votes.folder import discard_votes
from multiguard.votes.shards import load_manifest

RUN = provenance()


@pytest.fixture
def finished(tmp_path):
    """The content of a folder whose run was never interrupted."""
    write(tmp_path / "finished", RUN)
    return contents(tmp_path / "finished")


@pytest.fixture
def folder(tmp_path):
    """The folder of a run that has two of its three shards."""
    write(tmp_path / "votes", RUN, shards=[0, 2])
    return tmp_path / "votes"


def opened(folder, run=RUN, **options):
    return VotesWriter(folder, run, shard_images=2, **options)


def rows(writer, index):
    return [row(RUN, position) for position in writer.manifest.positions(index)]


def test_resumed_run(folder, finished):
    """A run is resumed where it stopped: complete shards and the manifest are not written again."""
    kept = [folder / "manifest.json", shard_path(folder, 0), shard_path(folder, 2)]
    before = [path.stat().st_mtime_ns for path in kept]
    assert opened(folder).missing() == [1]
    assert [path.stat().st_mtime_ns for path in kept] == before
    write(folder, RUN)
    assert [path.stat().st_mtime_ns for path in kept[1:]] == before[1:]
    assert contents(folder) == finished


def partial_files(folder):
    for name in ("votes-00001.parquet", "manifest.json"):
        (folder / f".{name}.ab12.part").write_bytes(b"PAR1")


def killed_before_the_manifest(folder):
    manifest = (folder / "manifest.json").read_bytes()
    write(folder, RUN)
    (folder / "manifest.json").write_bytes(manifest)
    with pytest.raises(VotesError, match="3 of 3 shards: its run has not finished"):
        read_votes(folder)


def damaged_when_finished(folder):
    write(folder, RUN)
    truncated(folder)


def missing_when_finished(folder):
    write(folder, RUN)
    shard_path(folder, 1).unlink()


def missing_manifest(folder):
    (folder / "manifest.json").unlink()
    assert opened(folder).missing() == [0, 1, 2], "its images may have changed since"


def shard_beyond_the_run(folder):
    shutil.copy(shard_path(folder, 0), shard_path(folder, 3))
    assert len(read_votes(folder, partial=True)) == 3


ACCIDENTS = [
    partial_files,
    killed_before_the_manifest,
    damaged_when_finished,
    missing_when_finished,
    missing_manifest,
    shard_beyond_the_run,
    *DAMAGES,
]


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_accident(folder, finished, accident):
    """After any accident the folder ends as if there had been none."""
    accident(folder)
    write(folder, RUN)
    assert contents(folder) == finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_image_hash": "0"}, "the first image (size or content) differs"),
        ({"sigma": 0.25, "noise_seed": 2, "clamp": True}, "noise, noise_seed and clamp differ"),
        ({"draws": 5}, "draws differs. It has 7 draws, and certify --draws takes"),
        (KINDS["threshold"], "rule, k_max and score_threshold differ"),
        (KINDS["adaptive"], "stops and stopping differ"),
    ],
)
def test_folder_of_another_run(folder, changes, message):
    """A folder of another run is refused with the names of what differs, and left as it is."""
    (folder / ".votes-00001.parquet.ab12.part").touch()
    before = contents(folder)
    with pytest.raises(VotesError, match=re.escape(f"another run: {message}")):
        opened(folder, provenance(**changes))
    with pytest.raises(VotesError, match="another run: shard_images differs"):
        VotesWriter(folder, RUN, shard_images=3)
    assert contents(folder) == before


def test_discarded_run(folder, finished):
    """Another run's votes and damaged ones are discarded on request; votes of this run never are."""
    assert opened(folder, discard=discard_votes).missing() == [1]
    assert opened(folder, provenance(noise_seed=5), discard=discard_votes).missing() == [0, 1, 2]
    write(folder, provenance(noise_seed=5))
    (folder / "manifest.json").write_text("{}")
    assert opened(folder, discard=discard_votes).missing() == [0, 1, 2]
    write(folder, RUN)
    assert contents(folder) == finished


@pytest.mark.parametrize(("changes", "missing"), [({}, [1]), ({"noise_seed": 5}, None)])
def test_other_first_image(folder, changes, missing):
    """A run that differs only in its first image is the same run if the caller finds the same images."""
    other = provenance(first_image_hash="0", **changes)
    with pytest.raises(VotesError, match="another run"):
        opened(folder, other)
    if missing is None:
        with pytest.raises(VotesError, match="another run"):
            opened(folder, other, same_images=lambda: True)
    else:
        writer = opened(folder, other, same_images=lambda: True)
        assert (writer.missing(), writer.manifest.provenance) == (missing, RUN)


def test_any_noise_seed(folder, finished):
    """A writer of any noise seed resumes with the stored one; whatever else differs is named, the noise seed not."""
    for main in (True, False):
        writer = opened(folder, provenance(noise_seed=5), any_noise_seed=True, main=main)
        assert writer.manifest.provenance == RUN
    with pytest.raises(VotesError, match="another run: noise differs"):
        opened(folder, provenance(noise_seed=5, sigma=0.25), any_noise_seed=True)
    writer = opened(folder, provenance(noise_seed=5), any_noise_seed=True)
    writer.write(1, rows(writer, 1))
    assert contents(folder) == finished


def test_run_without_shards(tmp_path):
    """A run that failed before its first shard gives way to another."""
    write(tmp_path, RUN, shards=[])
    writer = VotesWriter(tmp_path, provenance(sigma=0.25), shard_images=1)
    assert load_manifest(tmp_path) == writer.manifest
    assert (writer.manifest.provenance.noise.sigma, writer.manifest.shard_images) == (0.25, 1)


def test_finished_run_without_its_shards(tmp_path):
    """A finished run is refused to another run even if its shards are missing: they may be brought back."""
    write(tmp_path, RUN)
    for index in range(3):
        shard_path(tmp_path, index).unlink()
    with pytest.raises(VotesError, match="another run: noise_seed differs"):
        opened(tmp_path, provenance(noise_seed=5))


FAILURES = [
    ImageFailure("image-é-0", "it was torn"),
    ImageFailure("image-é-3", "it was empty"),
    ImageFailure("image-é-4", "it was huge"),
]


def with_failures(folder, **options):
    """A run whose first, fourth and last image failed, the last one alone in its shard."""
    writer = opened(folder, **options)
    for index in writer.missing():
        failures = [failure for failure in FAILURES if failure.image_id in writer.manifest.ids(index)]
        failed = {failure.image_id for failure in failures}
        writer.write(index, [one for one in rows(writer, index) if one.image_id not in failed], failures)


def test_failures(tmp_path):
    """Failures are listed and have no votes, before the run has finished and afterwards."""
    with_failures(tmp_path)
    votes = read_votes(tmp_path)
    assert votes.failures == tuple(FAILURES) == load_manifest(tmp_path).failures
    assert votes.ids == ("image-é-1", "image-é-2")
    assert (votes.ranked(1) == row(RUN, 2).ranked).all()
    truncated(tmp_path)
    assert opened(tmp_path).missing() == [0]
    assert read_votes(tmp_path, partial=True).failures == tuple(FAILURES[1:])


def test_failures_tried_again(tmp_path, finished):
    """Failures stay where they are kept, and are tried again where not; what is there stays until then."""
    with_failures(tmp_path / "votes")
    assert opened(tmp_path / "votes").missing() == []
    assert opened(tmp_path / "votes", keep_failures=False).missing() == [0, 1, 2]
    assert read_votes(tmp_path / "votes", partial=True).failures == tuple(FAILURES)
    assert opened(tmp_path / "votes").missing() == []
    assert read_votes(tmp_path / "votes").failures == tuple(FAILURES)
    again = opened(tmp_path / "votes", keep_failures=False)
    for index in again.missing():
        again.write(index, rows(again, index))
    assert contents(tmp_path / "votes") == finished


def test_several_writers(tmp_path, finished):
    """Several writers fill one folder, and only the main one finishes it."""
    main = opened(tmp_path / "votes")
    others = [opened(tmp_path / "votes", main=False) for _ in range(2)]
    others[0].write(0, rows(main, 0))
    main.write(2, rows(main, 2))
    main.finish()
    assert main.missing() == [1]
    with pytest.raises(VotesError, match="2 of 3 shards"):
        read_votes(tmp_path / "votes")
    for index in range(3):
        others[1].write(index, rows(main, index))
    assert not load_manifest(tmp_path / "votes").finished
    main.finish()
    assert contents(tmp_path / "votes") == finished


def test_damaged_shard_of_another_writer(tmp_path):
    """A shard of another writer that was damaged since does not finish the run."""
    main, other = opened(tmp_path), opened(tmp_path, main=False)
    other.write(0, rows(main, 0))
    truncated(tmp_path)
    with pytest.raises(VotesError, match=r"votes-00000.parquet is damaged"):
        main.finish()


def test_writer_of_other_votes(tmp_path):
    """A writer that would write other votes may not join."""
    opened(tmp_path)
    other = provenance(device="another GPU", versions={"torch": "1.0"})
    with pytest.raises(VotesError, match="not vote as the main one does: device and versions differ"):
        opened(tmp_path, other, main=False)
