"""Kills runs in processes of their own, again and again, and says how they end; a program of its own.

Its process imports torch and runs nothing of it, so that a child that it forks is as good as one started anew and costs
no import. What it finds goes to stdout as JSON.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from safetensors.numpy import load_file
from tests.smooth.toy import Images, linear

from multiguard.certify import look_plan
from multiguard.smooth import AdaptivePlan, Smoother, vote_dataset
from multiguard.votes import read_votes

with contextlib.suppress(ImportError):  # pyarrow imports it when it is first used, which would be in each child
    import pandas as pd  # noqa: F401

SHARDS, EPOCHS = 10, 4
PART_DONE = ("whole shards", "some epochs")  # what a run that was killed goes on from
ALL_EPOCHS = "all epochs"
LOOKS = look_plan(160, first=20)
KINDS = {
    "fixed": ({}, {"draws": 40}),
    "adaptive": ({}, {"adaptive": AdaptivePlan(LOOKS, (0.2,), k=2, k_prime=1, alpha=0.05)}),
    "threshold": ({"rule": "threshold"}, {"draws": 40, "pilot_draws": 9, "labelled": False}),
    "adaptive-threshold": (
        {"rule": "threshold"},
        {"adaptive": AdaptivePlan(LOOKS, (0.4,), threshold=0.5, alpha=0.05), "pilot_draws": 9},
    ),
}


def vote(folder: Path, kind: str) -> None:
    options, arguments = KINDS[kind]
    smoother = Smoother(linear(), sigma=0.5, device="cpu", batch_size=64, **options)
    vote_dataset(smoother, Images(SHARDS), folder, seed=3, shard_images=1, **arguments)


def learner() -> Callable[[Path], None]:
    """What trains a small model into a folder, after all has been imported that training imports on its way."""
    import matplotlib.backends.backend_agg  # noqa: F401
    import sklearn.metrics  # noqa: F401
    import torch._dynamo  # noqa: F401
    from torch import manual_seed, nn

    from multiguard.data import DigitsDataset, load_pixels
    from multiguard.models.backbone import Backbone
    from multiguard.train import hyperparameters_for, train

    pixels = [load_pixels(DigitsDataset(split, images=40)) for split in ("train", "val")]

    def learn(folder: Path) -> None:
        manual_seed(0)
        network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 10))
        start = Backbone("linear", network, (0.5,) * 3, (0.5,) * 3, 32)
        train(start, *pixels, hyperparameters_for("digits", epochs=EPOCHS, sigma=0.2, batch=10), folder)

    return learn


def forked(work: Callable[[], None]) -> int:
    """The id of a child that does this work and ends."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end_of(child: int) -> int:
    """The signal that a child died of; 0 where it came to its end."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0, "the run failed by itself"
    return 0


def contents(folder: Path) -> dict[str, bytes]:
    """What must be the same after any accident: all of a votes folder, and the tensors of a model folder."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert not any(name.endswith((".part", ".lock")) for name in files), files
    if "manifest.json" in files:
        return {name: path.read_bytes() for name, path in files.items()}
    tensors = {name: load_file(path) for name, path in files.items() if name.endswith(".safetensors")}
    return {f"{name} {key}": value.tobytes() for name, named in tensors.items() for key, value in named.items()}


def epochs_behind(folder: Path) -> str:
    """How far a training was, in a word."""
    from multiguard.train.checkpoint import read_progress

    progress = read_progress(folder)
    if progress is None:
        return "no epoch yet"
    return PART_DONE[1] if len(progress.history) < EPOCHS else ALL_EPOCHS


def left_behind(folder: Path) -> str:
    """What a kill left, in a word: how far the run was."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    shards = {name[:-8] for name in names if name.endswith(".parquet")}
    entries = {name[:-5] for name in names if name.startswith("votes-") and name.endswith(".json")}
    if "state" in names:
        return epochs_behind(folder)
    if "manifest.json" not in names:
        return "nothing"
    if len(read_votes(folder, partial=True)) == SHARDS:
        sealed = json.loads((folder / "manifest.json").read_text())["shards"] is not None
        return f"{'sealed' if sealed else 'not sealed'}, {'with' if entries else 'without'} entries"
    if any(name.endswith(".part") for name in names):
        return "half a file"
    if shards - entries:
        return "a shard without entry"
    return PART_DONE[0] if entries else "no shard yet"


def at_moments(folder: Path, work: Callable[[], None], *, seconds: float, kills: int, seed: int) -> Counter[str]:
    """Kill at random moments until there were so many kills, one of them at least in the middle of the work.

    Each time a run came to its end, a new one is begun; a middle that never comes ends after ten times as many.
    """
    chance, seen = random.Random(seed), Counter[str]()
    whole = contents(folder / "whole")
    while sum(seen.values()) < (kills if any(seen[state] for state in PART_DONE) else 10 * kills):
        child = forked(work)
        time.sleep(chance.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        if end_of(child):
            left = left_behind(folder / "killed")
            seen[left] += 1
            if left != ALL_EPOCHS:
                continue
            assert end_of(forked(work)) == 0  # what is left to do takes longer than any moment
        assert contents(folder / "killed") == whole, "a killed run ended with other votes"
        shutil.rmtree(folder / "killed")
    assert end_of(forked(work)) == 0
    assert contents(folder / "killed") == whole, "a killed run ended with other votes"
    return seen


def dying_at(point: int, work: Callable[[], None]) -> Callable[[], None]:
    """The work in a process that dies of SIGKILL right after its so many-th step that changes the folder."""

    def dies() -> None:
        steps = 0

        def hook(event: str, _: tuple[object, ...]) -> None:
            nonlocal steps
            steps += event in ("os.rename", "os.remove", "open", "os.chmod")
            if steps == point:
                steps += 1  # the kill is such an event itself
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    return dies


def at_points(folder: Path, work: Callable[[], None], *, seconds: float, together: int) -> Counter[str]:
    """Kill a run before every single step that it takes on files, and let it go on.

    A fresh run is begun after so many kills: the others find what those before them left.
    """
    seen, whole, point = Counter[str](), contents(folder / "whole"), 1
    while end_of(forked(dying_at(point, work))):
        seen[left_behind(folder / "killed")] += 1
        point += 1
        if point % together == 0:
            assert end_of(forked(work)) == 0
            assert contents(folder / "killed") == whole, "a killed run ended with other votes"
            shutil.rmtree(folder / "killed")
    return seen


def main(folder: Path, kind: str, how: str, number: int, seed: int) -> None:
    work = learner() if kind == "train" else partial(vote, kind=kind)
    started = time.time()
    assert end_of(forked(partial(work, folder / "whole"))) == 0
    last = folder / "whole" / ("state/last.safetensors" if kind == "train" else "manifest.json")
    seconds, killed = last.stat().st_mtime - started, partial(work, folder / "killed")
    at = {"points": partial(at_points, together=number), "moments": partial(at_moments, kills=number, seed=seed)}
    sys.stdout.write(json.dumps(at[how](folder, killed, seconds=seconds)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
