"""Many processes, one of them killed on the way, and machines: the votes are those of one process, byte for byte."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
}
VOTE = ["vote", "--model", "tests.smooth.taggers:slow", "--output", "logits", "--size", 16, "--sigma", 0.5]
SHARDS = 24
FIXED = [*VOTE, "--data", "digits", "--images", SHARDS, "--shard-images", 1, "--draws", 100, "--out", "votes"]
ADAPTIVE = [*FIXED, "--draws", "adaptive", "--max-draws", 400, "--radius", 0.5, "--k", 3, "--k-prime", 2]


RUNNING = []


@pytest.fixture(autouse=True)
def nothing_runs_on():
    """Where a test failed, what it started is ended: torchrun ends its processes when it is asked to."""
    yield
    while RUNNING:
        process = RUNNING.pop()
        process.terminate()
        process.communicate()


def started(place, *arguments):
    """Python with these arguments, in a folder of its own."""
    place.mkdir(exist_ok=True)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    RUNNING.append(subprocess.Popen([sys.executable, *map(str, arguments)], cwd=place, env=ENVIRONMENT, **pipes))
    return RUNNING[-1]


def torchrun(place, asked, *options):
    return started(place, "-m", "torch.distributed.run", *options, "-m", "multiguard", *asked)


def ended(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


def contents(place):
    return {path.name: path.read_bytes() for path in sorted((place / "votes").iterdir())}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The votes of one process."""
    place = tmp_path_factory.mktemp("alone")
    ended(started(place, "-m", "multiguard", *FIXED))
    return contents(place)


def workers(agent, rank=None):
    """The processes that a torchrun started, those of this rank alone where one is named."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, LookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == agent.pid:
                names = dict(entry.split("=", 1) for entry in (folder / "environ").read_text().split("\0") if entry)
                found += [int(folder.name)] if rank in (None, int(names["RANK"])) else []
    return found


def kill_when_there_are(shards, place, agent, rank=None):
    """Whether a process of a running torchrun was killed with SIGKILL, as soon as there were so many whole shards."""
    deadline = time.monotonic() + 120
    while len(list((place / "votes").glob("votes-*.json"))) < shards or not (found := workers(agent, rank)):
        if agent.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(found[0], signal.SIGKILL)
    return True


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def on_nodes(place, asked, nodes, each, *options):
    """Torchrun on so many machines, all of them this one."""
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "test"]
    count = ["--nnodes", nodes, "--nproc-per-node", each]
    return [torchrun(place, asked, *count, *meet, *options) for _ in range(nodes)]


def test_two_processes_one_of_them_killed_and_started_again(tmp_path, alone):
    """With --force too, for what the first start has left is the same run's."""
    agent = torchrun(tmp_path, [*FIXED, "--force"], "--standalone", "--nproc-per-node", 2, "--max-restarts", 1)
    assert kill_when_there_are(3, tmp_path, agent, rank=1)
    kept = {path.stem for path in (tmp_path / "votes").glob("votes-*.json")}
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "votes").glob("*.parquet")}
    out = ended(agent)
    assert out.count("100 votes on each of 24 images at sigma 0.5") == 1
    assert {name: text.replace(b" --force", b"") for name, text in contents(tmp_path).items()} == alone
    assert all((tmp_path / "votes" / name).stat().st_mtime_ns == before[name] for name in before if name[:-8] in kept)


def test_two_machines(tmp_path, alone):
    first, second = on_nodes(tmp_path, FIXED, 2, 1)
    assert sorted((ended(first).count("votes on each"), ended(second).count("votes on each"))) == [0, 1]
    assert contents(tmp_path) == alone


@pytest.mark.soak
@pytest.mark.parametrize("asked", [FIXED, ADAPTIVE], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("rank", [0, 3])
def test_four_processes_killed_again_and_again(tmp_path, asked, rank):
    ended(started(tmp_path / "alone", "-m", "multiguard", *asked))
    agent = torchrun(tmp_path / "many", asked, "--standalone", "--nproc-per-node", 4, "--max-restarts", 3)
    kills = 0
    for shards in (2, 9, 16):
        kills += kill_when_there_are(shards, tmp_path / "many", agent, rank)
        time.sleep(1)
    ended(agent)
    assert kills > 0
    assert contents(tmp_path / "many") == contents(tmp_path / "alone")


@pytest.mark.soak
def test_a_machine_that_is_lost_and_comes_back(tmp_path, alone):
    first, second = on_nodes(tmp_path, FIXED, 2, 2, "--max-restarts", 3)
    assert kill_when_there_are(4, tmp_path, second)
    ended(first)
    ended(second)
    assert contents(tmp_path) == alone
