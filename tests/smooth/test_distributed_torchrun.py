"""Processes under torchrun, some of them killed, and several machines: the votes are those of one process."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from networks import network

from multiguard.data import DigitsDataset
from multiguard.models import load
from multiguard.smooth import Smoother
from multiguard.votes import read_votes

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
}
VOTE = ["vote", "--model", "tests.smooth.networks:slow", "--output", "logits", "--size", 16, "--sigma", 0.5]
SHARDS, DRAWS = 24, 100
RANDOM = [*VOTE, "--data", "digits", "--images", SHARDS, "--set", "shard_images=1", "--draws", DRAWS, "--out", "votes"]
FIXED = [*RANDOM, "--noise-seed", 0]
ADAPTIVE = [*FIXED, "--draws", "adaptive", "--set", "max_draws=400", "--radius", 0.5, "--k", 3, "--k-prime", 2]
RUNNING = []


@pytest.fixture(autouse=True)
def ended_processes():
    """Where a test failed, its processes are ended: torchrun ends its workers when it is asked to."""
    yield
    while RUNNING:
        process = RUNNING.pop()
        process.terminate()
        process.communicate()


def start(folder, *arguments):
    """Python with these arguments, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    RUNNING.append(subprocess.Popen([sys.executable, *map(str, arguments)], cwd=folder, env=ENVIRONMENT, **pipes))
    return RUNNING[-1]


def torchrun(folder, command, *options):
    return start(folder, "-m", "torch.distributed.run", *options, "-m", "multiguard", *command)


def output_of(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "votes").iterdir())}


def workers(agent, rank=None):
    """The processes that a torchrun started; only those of this rank if one is named."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, LookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == agent.pid:
                names = dict(entry.split("=", 1) for entry in (folder / "environ").read_text().split("\0") if entry)
                found += [int(folder.name)] if rank in (None, int(names["RANK"])) else []
    return found


def kill_after(shards, folder, agent, rank=None):
    """Whether a worker was killed with SIGKILL, as soon as so many shards were finished."""
    deadline = time.monotonic() + 120
    while len(list((folder / "votes").glob("votes-*.parquet"))) < shards or not (found := workers(agent, rank)):
        if agent.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(found[0], signal.SIGKILL)
    return True


def test_killed_worker(tmp_path):
    """Two processes, one of them killed and restarted, with --force: finished shards stay, the votes are right.

    All of them vote with the seed that the first main process has drawn.
    """
    agent = torchrun(tmp_path, [*RANDOM, "--force"], "--standalone", "--nproc-per-node", 2, "--max-restarts", 1)
    assert kill_after(3, tmp_path, agent, rank=1)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "votes").glob("*.parquet")}
    finished = set(read_votes(tmp_path / "votes", partial=True).ids)
    assert output_of(agent).count("100 votes on each of 24 images, gaussian:0.5") == 1
    votes, images = read_votes(tmp_path / "votes"), DigitsDataset(size=16)
    files = [f"votes-{votes.ids.index(image_id):05d}.parquet" for image_id in finished]
    kept = [name for name in files if name in before]
    assert len(kept) >= 2
    assert all((tmp_path / "votes" / name).stat().st_mtime_ns == before[name] for name in kept)
    assert len(votes) == SHARDS
    one = Smoother(load(network(), labels=images.label_names, output="logits"), sigma=0.5, device="cpu")
    for position, image_id in enumerate(votes.ids):
        image = images[list(images.ids).index(image_id)].image
        alone = one.votes(image, DRAWS, noise_seed=votes.provenance.noise_seed, image_id=image_id)
        assert np.array_equal(votes.ranked(position), alone)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The files of one process."""
    folder = tmp_path_factory.mktemp("one")
    output_of(start(folder, "-m", "multiguard", *FIXED))
    return contents(folder)


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start_nodes(folder, command, nodes, each, *options):
    """Torchrun on so many machines, all of them this one."""
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "test"]
    count = ["--nnodes", nodes, "--nproc-per-node", each]
    return [torchrun(folder, command, *count, *meet, *options) for _ in range(nodes)]


@pytest.mark.soak
def test_two_machines(tmp_path, one_process):
    """Two machines write the files of one process, and one of them reports."""
    first, second = start_nodes(tmp_path, FIXED, 2, 1)
    assert sorted((output_of(first).count("votes on each"), output_of(second).count("votes on each"))) == [0, 1]
    assert contents(tmp_path) == one_process


@pytest.mark.soak
@pytest.mark.parametrize("command", [FIXED, ADAPTIVE], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("rank", [0, 3])
def test_many_kills(tmp_path, command, rank):
    """Four processes, one of them killed again and again."""
    output_of(start(tmp_path / "one", "-m", "multiguard", *command))
    agent = torchrun(tmp_path / "four", command, "--standalone", "--nproc-per-node", 4, "--max-restarts", 3)
    kills = 0
    for shards in (2, 9, 16):
        kills += kill_after(shards, tmp_path / "four", agent, rank)
        time.sleep(1)
    output_of(agent)
    assert kills > 0
    assert contents(tmp_path / "four") == contents(tmp_path / "one")


@pytest.mark.soak
def test_lost_machine(tmp_path, one_process):
    """A machine is lost and comes back."""
    first, second = start_nodes(tmp_path, FIXED, 2, 2, "--max-restarts", 3)
    assert kill_after(4, tmp_path, second)
    output_of(first)
    output_of(second)
    assert contents(tmp_path) == one_process
