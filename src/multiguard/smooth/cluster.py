"""Votes on many machines: Ray actors vote on shards and write them into a shared folder; the driver does the rest.

The driver lists the missing shards, hands them out, holds the folder lock and finishes the manifest. Noise is keyed,
so one process would make the same votes, whichever actor takes a shard and however often.
"""

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import ray
from ray.exceptions import RayError, RayTaskError

from multiguard.errors import InvalidInputError, MultiGuardError, VotesError
from multiguard.io.lock import check_code, package_checksum
from multiguard.smooth.config import ClusterConfig
from multiguard.smooth.vote import NamedRun
from multiguard.votes import Provenance, VotesWriter

_CPUS = 0.9  # of one actor: below 1, so that an actor per processor leaves room for Ray's own work
_TRIES = 5  # how often a lost actor is started again, and its shards are voted on again
_MOST_SHARDS = 8  # that an actor takes at a time
_PAUSE = 1.0  # seconds between two looks at `stop`


class Voter:
    """An actor: it votes on shards as one process would, and writes each of them whole.

    Errors of ours reach the driver as their text, since exceptions with other arguments do not survive the way.
    """

    def __init__(self, arguments: dict[str, Any], home: Path, code: str) -> None:
        self._arguments, self._home, self._code = arguments, home, code
        self._writer: VotesWriter | None = None

    @cached_property
    def _run(self) -> NamedRun:
        check_code(self._code)
        with suppress(OSError):
            os.chdir(self._home)  # relative paths mean what they mean to the driver
        return NamedRun(**self._arguments)

    def look(self) -> tuple[Provenance, list[str]] | VotesError:
        """All that determines the votes here, and what looks wrong with them."""
        try:
            return self._run.provenance, self._run.warnings()
        except MultiGuardError as error:
            return VotesError(str(error))

    def vote(self, folder: Path, shards: Sequence[int]) -> int | VotesError:
        """Vote on these shards; returns how many images they have."""
        try:
            writer = self._writer = self._writer or self._run.writer(folder, main=False)
            self._run.vote_shards(writer, shards, lambda: None)
            return sum(len(writer.manifest.positions(shard)) for shard in shards)
        except MultiGuardError as error:
            return VotesError(str(error))


class Team:
    """The actors of one run; those that wait for a machine get work once they have one."""

    def __init__(self, arguments: dict[str, Any], count: int | None) -> None:
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = 0 if (arguments["config"].device or "cuda") != "cuda" else int(found.get("GPU", 0))
        self.count = count or gpus or int(found.get("CPU", 1))
        options = {"num_cpus": _CPUS, "num_gpus": int(gpus > 0), "max_restarts": _TRIES, "max_task_retries": _TRIES}
        actor: Any = ray.remote(Voter).options(**options)
        actors = [actor.remote(arguments, Path.cwd(), package_checksum()) for _ in range(self.count)]
        self._idle = list[Any]()
        self._starting = {each.look.remote(): each for each in actors}
        self._voting = dict[Any, Any]()

    def look(self) -> tuple[Provenance, list[str]]:
        """What the first actor finds that has started; see `Voter.look`."""
        while True:
            for found in self._finished():
                return cast(tuple[Provenance, list[str]], found)

    def vote(
        self, writer: VotesWriter, folder: Path, on_images: Callable[[int], object], stop: Callable[[], bool]
    ) -> None:
        """Vote on the missing shards; once `stop` returns True, those under way are finished and the rest is left."""
        shards, folder = deque(writer.missing()), folder.absolute()
        size = max(1, min(_MOST_SHARDS, len(shards) // (4 * self.count)))
        while (shards and not stop()) or self._voting:
            while shards and self._idle and not stop():
                part, actor = [shards.popleft() for _ in range(min(size, len(shards)))], self._idle.pop()
                self._voting[actor.vote.remote(folder, part)] = actor
            for found in self._finished():
                on_images(found if isinstance(found, int) else 0)

    def _finished(self) -> Iterator[Any]:
        """The results that have arrived, after a moment; their actors are idle then."""
        tasks = self._starting | self._voting
        for task in ray.wait([*tasks], timeout=_PAUSE)[0]:
            self._idle.append(tasks[task])
            self._starting.pop(task, None)
            self._voting.pop(task, None)
            yield _result(task)


def _result(task: Any) -> Any:
    try:
        found = ray.get(task)
    except RayTaskError:
        raise  # a bug
    except RayError as error:
        raise VotesError(
            f"an actor was lost {_TRIES + 1} times, for want of memory perhaps ({type(error).__name__}); finished "
            "shards are kept, and the same command resumes"
        ) from error
    if isinstance(found, VotesError):
        raise found
    return found


@contextmanager
def open_team(cluster: ClusterConfig, arguments: dict[str, Any]) -> Iterator[Team]:
    """The actors for a run with these arguments of `NamedRun`, as long as the block lasts.

    A program that is connected to Ray stays connected, whatever `cluster` names.
    """
    connected = ray.is_initialized()
    if not connected:
        _connect(str(cluster.cluster), cluster.actors or 0)
    try:
        yield Team(arguments, cluster.actors)
    finally:
        if not connected:
            ray.shutdown()


def _connect(address: str, actors: int) -> None:
    """Connect to a cluster, or start one on this machine; Ray's usage statistics are off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"num_cpus": max(os.cpu_count() or 1, actors), "include_dashboard": False}
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, **options if address in ("local", "auto") else {})
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        words = " ".join(str(error).split())
        raise InvalidInputError(f"cluster is {address}, and Ray cannot be reached there: {words}") from error
    finally:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, on_term)  # Ray has set its own, which would end the driver at once
