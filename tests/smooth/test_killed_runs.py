"""Runs that are killed at any moment end with the same votes, byte for byte, and the same model, bit for bit."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

KILLING = Path(__file__).with_name("killing.py")
MEMORY = Path("/dev/shm")
KINDS = ["fixed", "adaptive", "threshold", "adaptive-threshold"]


@pytest.fixture
def place():
    """A folder in memory where there is one: what counts is when a process dies, not how fast the disk is."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield folder


def killed(place, kind, how, number, seed=0):
    """How many kills left what behind, after every run that was killed has come to its right end."""
    paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths}
    command = [sys.executable, KILLING, place, kind, how, number, seed]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_votes_after_fifty_kills_at_random_moments(place):
    seen = killed(place, "fixed", "moments", 50)
    assert sum(seen.values()) >= 50
    assert seen["whole shards"] > 0, "some shards were whole and others missing"


def test_votes_after_a_kill_before_every_step_on_files(place):
    seen = killed(place, "fixed", "points", 6)
    assert sum(seen.values()) > 40
    assert {"nothing", "no shard yet", "whole shards", "a shard without entry", "half a file"} <= set(seen)
    assert {"not sealed, with entries", "sealed, with entries"} & set(seen)


def test_a_model_after_kills_at_random_moments(place):
    seen = killed(place, "train", "moments", 4)
    assert sum(seen.values()) >= 4
    assert seen["some epochs"] > 0, "some epochs were done and others missing"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_votes_after_hundreds_of_kills(place, kind, seed):
    seen = killed(place, kind, "moments", 300, seed)
    assert sum(seen.values()) == 300
    assert seen["whole shards"] > 10


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_votes_after_each_of_all_possible_kills(place, kind):
    assert sum(killed(place, kind, "points", 1).values()) > 100


@pytest.mark.soak
def test_a_model_after_many_kills(place):
    seen = killed(place, "train", "moments", 60)
    assert seen["some epochs"] > 10
