"""Two processes under torchrun; run as a program, this file is what each of them does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.train.runs import fit
from torch import nn

from multiguard.certify import Gaussian
from multiguard.cli.main import run
from multiguard.data import DigitsDataset, load_pixels, subset
from multiguard.data.config import DataConfig
from multiguard.models.backbone import Backbone
from multiguard.models.card import read_card
from multiguard.models.model_folder import load_folder
from multiguard.models.networks import DenoisingNetwork
from multiguard.train import TrainConfig, train
from multiguard.train.trainer import noisy_map

TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
JOB = "train --data digits --model cnn:4 --size 16 --images 64 --set val_images=60 --force --epochs"


def torchrun(*arguments):
    """The output of two processes that each run this file."""
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *TORCHRUN, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def train_linear(out):
    """Train without noise, shift and batch normalisation: nothing that depends on the process."""
    torch.manual_seed(0)
    linear = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 10))
    network = DenoisingNetwork(nn.Conv2d(3, 3, 3, padding=1), linear)
    start = Backbone("linear", network, (0.5,) * 3, (0.5,) * 3, 32, own_head=False)
    config = TrainConfig(epochs=3, denoise_epochs=1, sigma=0.0, shift=0, batch=16).resolved("digits")
    fit(*(load_pixels(DigitsDataset(split, images=60)) for split in ("train", "val")), config, out, start=start)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The output of two processes that train a linear model, then replace another run's model by the command."""
    folder = tmp_path_factory.mktemp("two")
    other = TrainConfig(epochs=0, seed=3, model="cnn:4", images=64, val_images=60)
    train(other, DataConfig("digits", size=16), out=folder / "cnn")
    return folder, torchrun(folder)


def test_one_model(two_processes):
    """Two processes train one model and write it once, after the main one discarded another run's model.

    60 validation images are one chunk, so that the second process validates nothing.
    """
    folder, output = two_processes
    assert output.count("epoch   1") == 1
    assert output.count("best epoch") == 1
    card = read_card(folder / "cnn")
    assert [record["epoch"] for record in card.history] == [1, 2]
    validation = load_pixels(subset(DigitsDataset("val", size=16), 60))
    best = max(record["map_noisy"] for record in card.history)
    assert noisy_map(load_folder(folder / "cnn"), validation, Gaussian(0.5)) == pytest.approx(best, abs=1e-6)


def test_same_steps(tmp_path, two_processes):
    """Two processes step as one does: where nothing depends on the process, only the order of sums differs."""
    train_linear(tmp_path)
    two = load_file(two_processes[0] / "linear/state/last.safetensors")
    for name, tensor in load_file(tmp_path / "state/last.safetensors").items():
        torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=1e-3)


def main(folder):
    """Train a linear model, and replace another run's model by the command."""
    train_linear(folder / "linear")
    sys.argv = ["multiguard", *JOB.split(), "2", "--out", str(folder / "cnn")]
    run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
