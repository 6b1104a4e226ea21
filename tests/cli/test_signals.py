"""Ctrl-C and SIGTERM, sent to this very process while a command runs in it."""

import os
import signal
import threading
import time

import pytest
from tests.pipeline.tiny_run import RECIPE, command, state

from multiguard.cli import signals
from multiguard.cli.signals import Stopped, graceful_stop, immediate_stop

MAIN = threading.current_thread() is threading.main_thread()
pytestmark = pytest.mark.skipif(not MAIN, reason="signals reach the main thread alone")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
TRAIN = ["train", "--data", "digits", "--model", "cnn:2", "--images", 40, "--set", "val_images=40", "--batch-size", 8]


def sent_when(path, number):
    """Send the signal to this process when the file is there."""

    def wait_and_send():
        deadline = time.monotonic() + 120
        while not path.exists():
            if time.monotonic() > deadline:
                return  # the command then ends by itself, and the test fails
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait_and_send, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("number", CODES)
def test_interrupted_training(tmp_path, number):
    """Training stops at once and keeps the epochs that have ended."""
    asked = [*TRAIN, "--epochs", 400, "--out", tmp_path / "model"]
    sent = sent_when(tmp_path / "model" / "state" / "last.safetensors", number)
    code, _, err = command(*asked)
    sent.join()
    assert code == CODES[number]
    assert err == (f"multiguard: {WORDS[number]}; the finished epochs are kept, and the same command resumes\n")
    assert "state/last.safetensors" in state(tmp_path / "model")
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)


def test_terminated_run(tmp_path):
    """A terminated run stops at the next shard and resumes."""
    recipe = RECIPE.replace("draws: 60, shard_images: 4", "draws: 2000, shard_images: 1")
    (tmp_path / "tiny.yaml").write_text(recipe)
    asked = ["run", tmp_path / "tiny.yaml", "--out", tmp_path / "run", "--until", "vote"]
    sent = sent_when(tmp_path / "run" / "votes" / "votes-00000.parquet", signal.SIGTERM)
    code, _, err = command(*asked)
    sent.join()
    assert code == 143
    assert err == (
        "multiguard: terminated; the shards under way are finished first (again to stop at once), "
        "and the same command resumes\n"
    )
    kept = {name: shard for name, shard in state(tmp_path / "run" / "votes").items() if name.endswith(".parquet")}
    assert 1 <= len(kept) < 6
    code, _, err = command(*asked)
    assert (code, err) == (0, "")
    after = state(tmp_path / "run" / "votes")
    assert all(after[name] == shard for name, shard in kept.items())
    assert sum(name.endswith(".parquet") for name in after) == 6


def stopped_by(block, *numbers):
    """What a block of work raised when these signals came, and how many of them it lived to see."""
    lived = 0
    try:
        with block:
            for number in numbers:
                os.kill(os.getpid(), number)
                lived += 1
    except Stopped as stopped:
        return stopped.exit_code, stopped.announced, lived
    return None


def test_repeated_signal():
    """A signal that is delivered twice is one."""
    assert stopped_by(graceful_stop("first"), signal.SIGTERM, signal.SIGTERM, signal.SIGTERM) == (143, True, 3)
    assert stopped_by(graceful_stop("first"), signal.SIGTERM, signal.SIGTERM, signal.SIGINT) == (130, True, 2)


def test_second_signal(monkeypatch):
    """The first signal asks and the second stops."""
    monkeypatch.setattr(signals, "_ONE_REQUEST", 0)
    before = signal.getsignal(signal.SIGTERM)
    assert stopped_by(graceful_stop("first")) is None
    assert stopped_by(graceful_stop("first"), signal.SIGTERM) == (143, True, 1)
    assert stopped_by(graceful_stop("first"), signal.SIGTERM, signal.SIGINT, signal.SIGINT) == (130, True, 1)
    assert stopped_by(graceful_stop("first"), signal.SIGINT, signal.SIGINT) == (130, True, 1)
    assert stopped_by(immediate_stop(), signal.SIGTERM, signal.SIGTERM) == (143, False, 0)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("asked", [["run", "digits"], ["certify", "votes", "--k", 3], ["report", "certificates"]])
def test_single_process_commands(asked, monkeypatch):
    """What is work for one process refuses to be many."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    code, out, err = command(*asked)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"multiguard: {asked[0]} runs in one process, and this is one of 2 (WORLD_SIZE); only train runs in"
    )
    assert err.endswith("without torchrun and without WORLD_SIZE in the environment\n")
    assert err.count("\n") == 1
    monkeypatch.setenv("RANK", "1")
    told = err.replace("multiguard:", "multiguard, process 1 of 2:")
    assert command(*asked) == (2, "", told), "torchrun ends the others when one has ended: each must say why"
