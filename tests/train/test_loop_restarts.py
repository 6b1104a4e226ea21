"""Two processes under torchrun, of which one dies, hangs or runs other code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import multiguard
from multiguard.models.model_folder import read_card

PROGRAM = Path(__file__).with_name("stuck_rank.py")
SOURCE = Path(multiguard.__file__).parent


def torchrun(accident: str, out: Path, restarts: int) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    launch += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(PROGRAM), accident, str(out), str(SOURCE)]
    threads = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *launch], capture_output=True, text=True, env=os.environ | threads, timeout=400, check=False
    )


@pytest.mark.soak
@pytest.mark.parametrize("accident", ["kill", "stop"])
def test_restart(tmp_path, accident):
    """A process that is killed, or hangs for ever, fails the others within the time limit; torchrun restarts them."""
    done = torchrun(accident, tmp_path / "model", restarts=1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["epoch"] for record in read_card(tmp_path / "model").history] == [1, 2, 3, 4]


def test_edited_code(tmp_path):
    """A process whose files of multiguard were edited, at the same version, is refused before anything is trained."""
    done = torchrun("edit", tmp_path / "model", restarts=0)
    assert done.returncode != 0
    assert "this process runs other code of multiguard than the main one" in done.stdout + done.stderr
    assert not (tmp_path / "model/model.json").exists()
