"""Kills voting runs in subprocesses, again and again, and prints as JSON in which states they were killed.

The process imports torch but runs nothing of it, so a child that it forks is as good as a new process and costs no
import.
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

sys.path.insert(0, str(Path(__file__).parent))

from toy import Images, linear

from multiguard.certify import Threshold, TopK
from multiguard.errors import VotesError
from multiguard.smooth import AdaptivePlan, Smoother, vote_dataset
from multiguard.votes import read_votes

with contextlib.suppress(ImportError):  # pyarrow imports it at first use, which would be in each child
    import pandas as pd  # noqa: F401

KINDS = {
    "small": (2, {}, {"draws": 4}),
    "small-adaptive": (2, {}, {"adaptive": AdaptivePlan(TopK(2, 1), (0.2,), 60, alpha=0.05)}),
    "fixed": (10, {}, {"draws": 40}),
    "adaptive": (10, {}, {"adaptive": AdaptivePlan(TopK(2, 1), (0.2,), 160, alpha=0.05)}),
    "threshold": (10, {"score_threshold": 0.5}, {"draws": 40, "pilot_draws": 9, "labelled": False}),
    "adaptive-threshold": (
        10,
        {"score_threshold": 0.5},
        {"adaptive": AdaptivePlan(Threshold(0.5), (0.4,), 160, alpha=0.05), "pilot_draws": 9},
    ),
}


def vote(folder: Path, kind: str) -> None:
    shards, options, arguments = KINDS[kind]
    smoother = Smoother(linear(), sigma=0.5, device="cpu", batch_size=64, **options)
    vote_dataset(smoother, Images(shards), folder, noise_seed=3, shard_images=1, **arguments)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a finished votes folder, which must not depend on any accident."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert not any(name.endswith((".part", ".lock")) for name in files), files
    return files


def state_of(folder: Path) -> str:
    """What a kill left."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if "manifest.json" not in names:
        return "nothing"
    with contextlib.suppress(VotesError):
        read_votes(folder)
        return "finished"
    if any(name.endswith(".part") for name in names):
        return "a partial file"
    votes = read_votes(folder, partial=True)
    if len(votes) == len(votes.provenance.image_ids):
        return "all shards"
    return "some shards" if len(votes) else "no shard yet"


def fork(work: Callable[[], None]) -> int:
    """The id of a child process that does this work and ends."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait_for(child: int) -> int:
    """The signal that ended a child; 0 if it ended by itself."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0, "the run failed by itself"
    return 0


def check(folder: Path) -> None:
    """Compare the run that was killed and resumed with the complete one, and remove it."""
    assert contents(folder / "killed") == contents(folder / "complete"), "a killed run ended with other votes"
    shutil.rmtree(folder / "killed")


def kill_at_moments(folder: Path, work: Callable[[], None], *, seconds: float, kills: int, seed: int) -> Counter[str]:
    """Kill at random moments; each time a run comes to its end, a new one is started."""
    chance, states = random.Random(seed), Counter[str]()
    while sum(states.values()) < kills:
        child = fork(work)
        time.sleep(chance.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        if wait_for(child):
            states[state_of(folder / "killed")] += 1
        else:
            check(folder)
    assert wait_for(fork(work)) == 0
    check(folder)
    return states


def dying_at(point: int, work: Callable[[], None]) -> Callable[[], None]:
    """The work in a process that dies of SIGKILL before its n-th change of a file."""

    def dies() -> None:
        changes = 0

        def hook(event: str, _: tuple[object, ...]) -> None:
            nonlocal changes
            changes += event in ("os.rename", "os.remove", "open", "os.chmod")
            if changes == point:
                changes += 1  # the kill is such an event itself
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    return dies


def kill_at_points(folder: Path, work: Callable[[], None], *, together: int) -> Counter[str]:
    """Kill a run before every single change of a file; after `together` kills it is completed and checked."""
    states, point = Counter[str](), 1
    while wait_for(fork(dying_at(point, work))):
        states[state_of(folder / "killed")] += 1
        point += 1
        if point % together == 0:
            assert wait_for(fork(work)) == 0
            check(folder)
    return states


def main(folder: Path, kind: str, how: str, number: int, seed: int) -> None:
    work, started = partial(vote, kind=kind), time.time()
    assert wait_for(fork(partial(work, folder / "complete"))) == 0
    seconds = (folder / "complete" / "manifest.json").stat().st_mtime - started
    killed = partial(work, folder / "killed")
    if how == "points":
        states = kill_at_points(folder, killed, together=number)
    else:
        states = kill_at_moments(folder, killed, seconds=seconds, kills=number, seed=seed)
    sys.stdout.write(json.dumps(states))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
