"""After a crash or a power cut at any moment votes and training end with the same files."""

import itertools
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from tests.crash import crash_states, names_and_sizes, put, state_of
from tests.pipeline.cheap_commands import MODEL

from multiguard.data.config import DataConfig
from multiguard.evaluate import CertifyConfig
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.vote import vote
from multiguard.train import TrainConfig, train, trainer

MEMORY = Path("/dev/shm")


def run_vote(out, draws=3, **how):
    config = VoteConfig(draws=draws, shard_images=1, noise_seed=0, device="cpu", **how)
    target = CertifyConfig(k=2, k_prime=1, alpha=0.05) if draws == "adaptive" else None
    model = ModelConfig(MODEL, output="logits")
    vote(config, DataConfig("digits", images=2, size=16), model, noise="gaussian:0.5", target=target, out=out)


def run_adaptive(out):
    run_vote(out, "adaptive", max_draws=60, radii=(0.2,))


def run_changed(out):
    """Votes on images of which the second has changed since those that are there were cast."""
    images = out.parents[1] / "images"
    if not images.exists():
        images.mkdir()
        for name in ("a.png", "b.png"):
            Image.new("L", (16, 16), 9).save(images / name)
    elif not (images / ".changed").exists():
        Image.new("L", (16, 16), 255).save(images / "b.png")
        (images / ".changed").touch()
    config = VoteConfig(draws=3, shard_images=1, noise_seed=0, pilot_draws=2, device="cpu")
    model = ModelConfig(MODEL, output="logits", labels=images.with_name("labels.txt"))
    images.with_name("labels.txt").write_text("\n".join("0123456789"))
    data = DataConfig("folder", root=images, size=16, labelled=False)
    vote(config, data, model, noise="gaussian:0.5", out=out, force=True)


def run_train(out, epochs=2, **more):
    config = TrainConfig(model="cnn:2", images=16, val_images=16, batch=8, epochs=epochs)
    train(config, DataConfig("digits", size=16), out=out, **more)


RUNS = {"vote": (run_vote, 12), "adaptive": (run_adaptive, 8), "extend": (lambda out: run_vote(out, 5), 12)}
RUNS |= {"changed": (run_changed, 12), "train": (run_train, 4)}
RUNS["retrain"] = (lambda out: run_train(out, 0, force=True), 3)
# What is in the folder before.
EARLIER = {"extend": run_vote, "changed": run_changed, "retrain": lambda out: run_train(out, 1)}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["some", "all"])
@pytest.mark.parametrize("name", RUNS)
def test_every_crash_state(monkeypatch, name, whole):
    """`make test` tries a seeded selection of the states, `make soak` all of them."""
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(trainer, "time", clock)  # the record of an epoch has its speed
    run, most = RUNS[name]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        home, before = Path(folder).resolve(), Path(folder).resolve() / "before"
        before.mkdir()
        if name in EARLIER:
            EARLIER[name](before / "out")
        states = crash_states(monkeypatch, before, lambda: run(before / "out"), None if whole else most)
        after = state_of(before)
        for number, state in enumerate(states):
            again = put(home / str(number), state)
            run(again / "out")
            differences = {path for path, _ in state_of(again) ^ after}
            assert differences <= {"out/.multiguard.lock"}, names_and_sizes(state)
