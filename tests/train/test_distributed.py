import json
import os
import subprocess
import sys

from multiguard.models.folder import load_folder, read_card

TWO = [
    "-m",
    "torch.distributed.run",
    "--nproc-per-node=2",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=localhost:0",
]
JOB = [
    "train",
    "--data",
    "digits",
    "--model",
    "cnn:4",
    "--images",
    "64",
    "--val-images",
    "130",
    "--epochs",
    "2",
]


def launch(prefix, out):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *prefix, "-m", "multiguard", *JOB, "--out", str(out)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
        check=False,
    )


def test_two_processes_train_one_model_and_write_it_once(tmp_path):
    done = launch(TWO, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch   1") == 1
    assert done.stdout.count("best epoch") == 1
    load_folder(tmp_path / "two")
    assert launch([], tmp_path / "one").returncode == 0
    one, two = (read_card(tmp_path / name).history for name in ("one", "two"))
    assert [record["epoch"] for record in two] == [1, 2]
    # The same batches, with other noise and batch statistics: near, not equal.
    assert two[0]["loss"] != one[0]["loss"]
    assert abs(two[0]["loss"] - one[0]["loss"]) < 0.5
    assert json.dumps(two)
