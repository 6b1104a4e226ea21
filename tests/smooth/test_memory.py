"""Votes in memory: the same as in a folder, and no file is opened for them."""

import json
import subprocess
import sys
import tempfile

import pytest
from toy import Images, linear

from multiguard.certify import TopK
from multiguard.smooth import AdaptivePlan, Smoother
from multiguard.smooth.dataset import VoteRun
from multiguard.votes import read_votes

WAYS = {
    "fixed": {"draws": 30},
    "pilots": {"draws": 30, "pilot_draws": 7, "labelled": False},
    "adaptive": {"adaptive": AdaptivePlan(TopK(2, 1), (0.2,), 160, alpha=0.05)},
}

OPENS = """
import json, sys, tempfile
import numpy as np
from multiguard import Smoother, TopK
from multiguard.smooth.dataset import VoteRun

SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/etc")

def opened(path, mode, flags):
    return isinstance(path, str) and not path.endswith((".py", ".pyc", ".so")) and not path.startswith(SYSTEM)

smoother = Smoother(lambda rows: rows.copy(), sigma=0.25, labels=["cat", "dog", "emu"], device="cpu")
data = np.eye(3), [["cat"], ["dog"], ["emu"]]
if sys.argv[1] == "certify":
    smoother.certify(data, TopK(1, k_prime=1), draws=100, progress=False)  # what libraries read at first use
files = []
sys.addaudithook(lambda event, args: files.append(args[0]) if event == "open" and opened(*args) else None)
if sys.argv[1] == "certify":
    smoother.certify(data, TopK(1, k_prime=1), draws=100, progress=False)
elif sys.argv[1] == "folder":
    VoteRun(smoother, data, draws=50, resumable=False).write(sys.argv[2])
else:
    VoteRun(smoother, data, draws=50, resumable=False).votes()
print(json.dumps(files))
"""


def rows(votes):
    return [
        (
            row.image_id,
            row.labels,
            row.votes.tolist(),
            None if row.pilot is None else row.pilot.tolist(),
            row.bare.tolist(),
        )
        for row in votes.rows(adaptive=True)
    ]


@pytest.mark.parametrize("way", WAYS)
def test_same_votes(tmp_path, way):
    """Votes in memory equal a folder's, whatever the shards."""
    smoother = Smoother(linear(), sigma=0.5, device="cpu", batch_size=16)
    done = []
    runs = [VoteRun(smoother, Images(7), noise_seed=3, shard_images=size, **WAYS[way]) for size in (2, 64)]
    kept = runs[0].votes(lambda *counts: done.append(counts))
    runs[1].write(tmp_path)
    assert rows(kept) == rows(read_votes(tmp_path))
    assert kept.provenance == read_votes(tmp_path).provenance
    assert done == [(number, 7) for number in range(1, 8)]


def test_failures():
    """Images that cannot be used are recorded in memory, too; a run of nothing else raises."""
    smoother = Smoother(linear(), sigma=0.5, device="cpu")
    votes = VoteRun(smoother, Images(4, unreadable={2}), draws=5, on_error="record").votes()
    assert ([failure.image_id for failure in votes.failures], len(votes)) == (["image-2"], 3)


def opens(what: str) -> list[str]:
    """The files that a process opens for votes, by an audit of every open."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", OPENS, what, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def test_no_file():
    """Votes in memory and their certificates open no file; votes in a folder show that the audit sees them."""
    assert opens("memory") == opens("certify") == []
    assert any("manifest.json" in name for name in opens("folder"))
