"""After a crash or a power cut at any moment the same command ends with the same files."""

import itertools
import random
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.crash import Recorder, put, state_of

from multiguard.data.config import DataConfig
from multiguard.evaluate import CertifyConfig, certify_votes
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.vote import vote
from multiguard.train import TrainConfig, train, trainer
from multiguard.votes import read_votes

MEMORY = Path("/dev/shm")
SELECTED = {"vote": 20, "extend": 20, "certify": 20, "again": 20, "train": 8}  # states that `make test` tries


def linear_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


def run_vote(out, draws=3):
    config = VoteConfig(draws=draws, shard_images=1, noise_seed=0, device="cpu")
    model = ModelConfig(f"{__name__}:linear_model", output="logits")
    vote(config, DataConfig("digits", images=2, size=16), model, noise="gaussian:0.5", out=out)


def run_train(out):
    config = TrainConfig(model="cnn:2", images=16, val_images=16, batch=8, epochs=2)
    train(config, DataConfig("digits", size=16), out=out)


def run_certify(out, k=3):
    certify_votes(CertifyConfig(k=k, k_prime=2), read_votes(out.parents[1] / "votes"), out=out, force=True)


RUNS = {"vote": run_vote, "certify": run_certify, "train": run_train}
RUNS |= {"extend": lambda out: run_vote(out, 5), "again": lambda out: run_certify(out, 4)}
EARLIER = {"extend": run_vote, "again": run_certify}  # what is in the folder before


@pytest.fixture
def home():
    """A folder in memory if possible."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder).resolve()


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["some", "all"])
@pytest.mark.parametrize("name", RUNS)
def test_every_crash_state(home, monkeypatch, name, whole):
    """The states are all that a disk may be in after a crash; `make test` takes a seeded selection of them."""
    ticks = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(trainer, "time", ticks)  # the record of an epoch has its speed
    run, before = RUNS[name], home / "before"
    before.mkdir()
    if name in ("certify", "again"):
        run_vote(home / "votes")
    if name in EARLIER:
        EARLIER[name](before / "out")
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, before)
        run(before / "out")
    after = state_of(before)
    assert recorder.recorded() == after, "every change goes through the calls that are recorded"
    states = sorted(recorder.states, key=names_and_sizes)
    assert len(states) > SELECTED[name]
    if not whole:
        states = random.Random(0).sample(states, SELECTED[name])
    for number, state in enumerate(states):
        put(home / str(number), state)
        run(home / str(number) / "out")
        differences = {path for path, _ in state_of(home / str(number)) ^ after}
        assert differences <= {"out/.multiguard.lock"}, (
            f"after {sorted((path, content and len(content)) for path, content in state)}"
        )


def names_and_sizes(state):
    """An order of the states, whatever the random names of partial files are."""
    sizes = ((re.sub(r"\.[^.]+\.part", ".part", path), len(content or b"")) for path, content in state)
    return sorted(sizes)
