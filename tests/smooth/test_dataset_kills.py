"""Runs that are killed at any moment end with the same votes, byte for byte."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kill_runs import KINDS, contents, state_of, vote
from tests.killer import Killer

from multiguard.votes import read_votes

SCRIPT = Path(__file__).with_name("kill_runs.py")
MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_folder():
    """A folder in memory if possible: only the order of the changes matters."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("kind", ["small", "small-adaptive"])
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


def kill_subprocesses(folder, kind, how, number, seed=0):
    """How many kills left which state, after every killed run has been completed correctly."""
    paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths}
    command = [sys.executable, SCRIPT, folder, kind, how, number, seed]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_random_moments(memory_folder, kind, seed):
    """Real processes, killed by SIGKILL hundreds of times."""
    states = kill_subprocesses(memory_folder, kind, "moments", 300, seed)
    assert sum(states.values()) == 300
    assert kind.startswith("small") or states["some shards"] > 10


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_all_changes(memory_folder, kind):
    """Real processes, killed by SIGKILL before every change of a file."""
    assert sum(kill_subprocesses(memory_folder, kind, "points", 1).values()) > 20
