"""A voting run that is killed before any change of a file ends with the same votes, byte for byte."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.killer import Killer
from toy import Images, linear

from multiguard.certify import TopK
from multiguard.errors import VotesError
from multiguard.smooth import AdaptivePlan, Smoother, vote_dataset
from multiguard.votes import read_votes

MEMORY = Path("/dev/shm")
KINDS = {"fixed": {"draws": 4}, "adaptive": {"adaptive": AdaptivePlan(TopK(2, 1), (0.2,), 60, alpha=0.05)}}


def vote(folder: Path, kind: str) -> None:
    smoother = Smoother(linear(), sigma=0.5, device="cpu", batch_size=64)
    vote_dataset(smoother, Images(2), folder, noise_seed=3, shard_images=1, **KINDS[kind])


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a finished votes folder, which must not depend on any accident."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert not any(name.endswith((".part", ".lock")) for name in files), files
    return files


def state_of(folder: Path) -> str:
    """What a kill left."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if "manifest.json" not in names:
        return "nothing"
    with contextlib.suppress(VotesError):
        read_votes(folder)
        return "finished"
    if any(name.endswith(".part") for name in names):
        return "a partial file"
    votes = read_votes(folder, partial=True)
    if len(votes) == len(votes.provenance.image_ids):
        return "all shards"
    return "some shards" if len(votes) else "no shard yet"


@pytest.fixture
def memory_folder():
    """A folder in memory if possible: only the order of the changes matters."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_kill_at_every_change(memory_folder, monkeypatch, kind):
    """A kill before any single change of a file costs nothing: the run resumes and ends with the same files."""
    killer = Killer(monkeypatch)
    complete, killed = memory_folder / "complete", memory_folder / "killed"
    vote(complete, kind)
    states, finished, calls = set(), [], 1
    while killer.run(lambda: vote(killed, kind), calls):
        states.add(state_of(killed))
        finished.append(len(read_votes(killed, partial=True)) if (killed / "manifest.json").exists() else 0)
        killer.run(lambda: vote(killed, kind), 3 * calls % 7 + 1)  # another kill on top
        vote(killed, kind)
        assert contents(killed) == contents(complete), calls
        shutil.rmtree(killed)
        calls += 1
    assert calls == 20, "the lock, two shards, the manifest and the clean-up are 19 changes"
    assert finished == sorted(finished), "a later kill never costs a finished shard"
    assert states >= {"nothing", "a partial file", "no shard yet", "some shards", "all shards"}
