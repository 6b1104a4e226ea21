"""Ctrl-C and a full disk in a real process: one line, what was there stays whole, the same command resumes."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch
from tests.pipeline.tiny_run import command, state

from multiguard.votes import read_votes

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
}


def linear_model():
    """A random network: its votes are as hard to compress as votes can be."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


def started(*arguments, limit=None):
    def bounded():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "multiguard", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=None if limit is None else bounded,
    )


def ended(*arguments):
    """Run the command in its own process: what it imports is recorded with the votes."""
    process = started(*arguments)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def wait_for(path, process):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def voting(out, draws, images):
    model = ["--model", "tests.cli.test_signals_process:linear_model", "--output", "logits", "--size", 16]
    model += ["--sigma", 0.5]
    asked = ["--data", "digits", "--images", images, "--draws", draws, "--set", "shard_images=1"]
    return ["vote", *model, *asked, "--out", out]


FINISHING = "the shards under way are finished first (again to stop at once), and the same command resumes"


def test_interrupted_vote(tmp_path):
    """Ctrl-C prints one line and the same command resumes."""
    asked = voting(tmp_path / "votes", 6000, 40)
    process = started(*asked)
    wait_for(tmp_path / "votes" / "votes-00001.parquet", process)
    code, _, err = command(*asked)
    assert (code, err.count("\n")) == (2, 1)
    assert f"another run is writing into {tmp_path / 'votes'}; wait until it has ended, stop it" in err
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    told = [line for line in out.splitlines() if not line.startswith("warning: ")]
    assert (process.returncode, len(told)) == (130, 1)
    assert out.startswith("scores are read in the dataset's order of labels")
    assert err == f"multiguard: interrupted; {FINISHING}\n"
    done = {name: kept for name, kept in state(tmp_path / "votes").items() if name.endswith(".parquet")}
    assert 2 <= len(done) < 40
    assert len(read_votes(tmp_path / "votes", partial=True)) == len(done), "the shards under way were finished"
    ended(*asked)
    after = state(tmp_path / "votes")
    assert all(after[name] == kept for name, kept in done.items())
    assert len(read_votes(tmp_path / "votes")) == 40


def test_full_disk(tmp_path):
    """A full disk is one line that names the file."""
    asked = voting(tmp_path / "votes", 1500, 2)
    process = started(*asked, limit=6_000)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert "Traceback" not in out
    shard = tmp_path / "votes" / "votes-00000.parquet"
    assert err == f"multiguard: {shard}: File too large; nothing that was there before has changed\n"
    assert [path.name for path in (tmp_path / "votes").iterdir()] == ["manifest.json"]
    ended(*asked)
    assert len(read_votes(tmp_path / "votes")) == 2


@pytest.mark.soak
def test_full_disk_certificates(tmp_path):
    """A full disk leaves earlier certificates intact."""
    assert command(*voting(tmp_path / "votes", 50, 4))[0] == 0
    certifying = ["certify", tmp_path / "votes", "--k", 3, "--k-prime", 2]
    assert command(*certifying)[0] == 0
    before = state(tmp_path)
    process = started(*certifying, "--force", "--method", "all", "--set", "radius_step=0.0001", limit=50_000)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, ""), err
    assert "File too large" in err
    assert err.count("\n") == 1
    assert state(tmp_path) == before


def test_unwritable_folder(tmp_path):
    """A folder that may not be written to is one line."""
    (tmp_path / "file").write_text("no folder")
    code, _, err = command(*voting(tmp_path / "file" / "votes", 50, 2))
    assert (code, err.count("\n")) == (2, 1)
    assert "no folder that can be written to" in err


# Sends Ctrl-C to its own process at the moment when the module of this name is first imported.
INTERRUPT = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, *more):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["vote", "--model", "x", "--data", "digits", "--out", "v", sys.argv[-1]]
runpy.run_module("multiguard", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["multiguard.cli.main", "typer", "numpy"])
def test_interrupted_import(module):
    """Ctrl-C is one line and exit code 130 from the first import on."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT, module], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (130, 1), done.stderr
    assert done.stderr.startswith("multiguard: interrupted; ")
