import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from multiguard.data import DigitsDataset, load_pixels, subset
from multiguard.models.backbone import Backbone
from multiguard.models.folder import load_folder, read_card
from multiguard.train import hyperparameters_for, noisy_map, train

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

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
    "60",
    "--epochs",
    "2",
]


def launch(prefix, out, *more):
    return subprocess.run(
        [sys.executable, *prefix, "-m", "multiguard", *JOB, "--out", str(out), *more],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=240,
        check=False,
    )


def test_two_processes_train_one_model_and_write_it_once(tmp_path):
    """60 validation images are one piece of work, so that the second process validates nothing.

    Another run's model lies there, which the main process throws away before the other one looks.
    """
    assert launch([], tmp_path, "--seed", "3", "--epochs", "0").returncode == 0
    done = launch(TWO, tmp_path, "--force")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch   1") == 1
    assert done.stdout.count("best epoch") == 1
    card = read_card(tmp_path)
    assert [record["epoch"] for record in card.history] == [1, 2]
    validation = load_pixels(subset(DigitsDataset("val"), 60))
    best = max(record["map_noisy"] for record in card.history)
    assert noisy_map(load_folder(tmp_path), validation, 0.5) == pytest.approx(best, abs=1e-6)


def test_two_processes_step_as_one_where_nothing_depends_on_the_process(tmp_path):
    """Without noise, shift and normalisation over the batch, only the order of sums differs from one process."""
    started = {}
    for name, prefix in (("one", []), ("two", TWO)):
        command = [sys.executable, *prefix, __file__, str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        started[name] = load_file(tmp_path / name / "state" / "last.safetensors")
    for name, tensor in started["one"].items():
        torch.testing.assert_close(started["two"][name], tensor, atol=1e-5, rtol=1e-3)


def train_without_batch_norm(out):
    torch.manual_seed(0)
    network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 10))
    start = Backbone("linear", network, (0.5,) * 3, (0.5,) * 3, 32)
    recipe = hyperparameters_for("digits", epochs=2, sigma=0.0, shift=0, batch=16)
    train(start, *(load_pixels(DigitsDataset(split, images=60)) for split in ("train", "val")), recipe, out)


if __name__ == "__main__":
    train_without_batch_norm(Path(sys.argv[1]))
