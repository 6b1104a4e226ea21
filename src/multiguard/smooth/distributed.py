"""Processes that vote together: the main process lists the shards, and each process takes the next one when it is free.

Nobody waits for anybody before the end, so a slow image holds up only its own process. The processes share a few small
numbers in torchrun's store; votes go through the folder. A restarted process may find values of an earlier start in
the store, so it trusts only the reply to its own request.

If a process dies, torchrun ends the others. Without torchrun nobody does: then the main process waits only for
processes that send heartbeats.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from torch.distributed import HashStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from multiguard.errors import VotesError
from multiguard.io.ranks import Rank, check_code, package_checksum, this_rank

if TYPE_CHECKING:
    from multiguard.smooth.dataset import VoteRun
    from multiguard.votes import Manifest

Value = TypeVar("Value")

_REQUEST = "multiguard/request/{}"  # the key of a process's request
_PAUSE = 0.1  # seconds between two reads of the store
_HEARTBEAT = 5.0  # seconds between two heartbeats
_TIMEOUT = 120.0  # seconds without a heartbeat after which a process counts as dead


class Work:
    """The shards `todo` that a team votes on: each is taken by exactly one process.

    `session` is a name unique to each start, `done` the number of images that were done before; no shard is taken once
    `stop` returns True.
    """

    def __init__(self, team: "Team", session: str, done: int, stop: Callable[[], bool]) -> None:
        self._store, self._rank, self._timeout = team.store, team.rank, team.timeout
        self._session, self._done, self._stop = session, done, stop
        self.todo: list[int] = json.loads(_call(lambda: team.store.get(f"{session}/todo")))

    def __iter__(self) -> Iterator[int]:
        """Shards that no other process has taken, until there are none or any process has to stop."""
        while self._add("stop", int(self._stop())) == 0:
            number = self._add("taken")
            if number > len(self.todo):
                return
            yield self.todo[number - 1]

    def count_image(self) -> int:
        """Count one more image as done; returns how many the team has done in all."""
        return self._done + self._add("images")

    def leave(self) -> None:
        """Announce that this process has written everything that it took."""
        self._add(f"left/{self._rank.number}")

    def wait(self, progress: Callable[[int], None]) -> None:
        """Return when all other processes have left or are given up, or this one has to stop.

        Meanwhile `progress` is called with the number of images done.
        """
        seen: dict[int, tuple[int, float]] = {}
        while sum(self._is_working(number, seen) for number in range(1, self._rank.count)) and not self._stop():
            progress(self._done + self._add("images", 0))
            time.sleep(_PAUSE)
        if self._rank.count > 1:
            progress(self._done + self._add("images", 0))

    def send_heartbeats(self, over: threading.Event) -> None:
        """Send heartbeats to the main process until the work is over."""
        with suppress(VotesError):  # the store is gone: the main thread reports it
            while self._add(f"heartbeats/{self._rank.number}") and not over.wait(_HEARTBEAT):
                pass

    def _is_working(self, number: int, seen: dict[int, tuple[int, float]]) -> bool:
        """Whether another process still works; `seen` keeps its heartbeats and when the last one came."""
        if self._add(f"left/{number}", 0):
            return False
        beats, now = self._add(f"heartbeats/{number}", 0), time.monotonic()
        if seen.get(number, (-1, now))[0] != beats:
            seen[number] = (beats, now)
        return self._timeout is None or now - seen[number][1] < self._timeout

    def _add(self, name: str, amount: int = 1) -> int:
        return _call(lambda: self._store.add(f"{self._session}/{name}", amount))


class Team:
    """All the processes that vote on one dataset, and the store that they share.

    A process without a heartbeat for `timeout` seconds is given up; None waits forever.
    """

    def __init__(self, rank: Rank, store: Store, timeout: float | None = None) -> None:
        self.rank, self.store, self.timeout = rank, store, timeout

    @classmethod
    def current(cls) -> "Team":
        """The team that torchrun has started, or this process alone."""
        rank = this_rank()
        timeout = _TIMEOUT if rank.restarts is None else None  # torchrun itself notices dead processes
        return cls(rank, HashStore() if rank.count == 1 else next(iter(rendezvous("env://")))[0], timeout)

    def write(
        self,
        run: "VoteRun",
        folder: Path,
        progress: Callable[[int, int], None],
        stop: Callable[[], bool],
        discard: Callable[[Path], None] | None,
    ) -> "Manifest | None":
        """`VoteRun.write` in every process of a team; the main one lists the shards and returns the manifest."""
        if not self.rank.is_main:
            with self.join(stop) as work:
                if work is not None:
                    if work.todo:
                        run.vote_shards(run.writer(folder, main=False), work, work.count_image)
                    work.leave()
            return None
        writer, total = run.writer(folder, discard), len(run.provenance.image_ids)
        with self.lead(writer.missing(), run.images_done(writer), stop) as work:
            run.vote_shards(writer, work, lambda: progress(work.count_image(), total))
            work.leave()
            work.wait(lambda images: progress(images, total))
        return run.finish(writer, stop)

    @contextmanager
    def lead(self, todo: Sequence[int], done: int, stop: Callable[[], bool]) -> Iterator[Work]:
        """The work on these shards, which the main process hands out inside the block; `done` images are done."""
        session = uuid4().hex
        _call(lambda: self.store.set(f"{session}/todo", json.dumps(list(todo))))
        _call(lambda: self.store.set(f"{session}/code", package_checksum()))
        with _background(lambda over: self._reply(session, over)):
            yield Work(self, session, done, stop)

    @contextmanager
    def join(self, stop: Callable[[], bool]) -> Iterator[Work | None]:
        """The work, once the main process has prepared the folder; None if it has to stop before."""
        request = uuid4().hex
        _call(lambda: self.store.set(_REQUEST.format(self.rank.number), request))
        while not _call(lambda: self.store.check([request])):
            if stop():
                yield None
                return
            time.sleep(_PAUSE)
        session = _call(lambda: self.store.get(request)).decode()
        check_code(_call(lambda: self.store.get(f"{session}/code")).decode())
        work = Work(self, session, 0, stop)
        with _background(work.send_heartbeats):
            yield work

    def _reply(self, session: str, over: threading.Event) -> None:
        """Send the name of the current work to every process that requests it, late or restarted ones too."""
        requests = [_REQUEST.format(number) for number in range(1, self.rank.count)]
        served: set[bytes] = set()
        with suppress(RuntimeError):  # the store is gone: the main thread reports it
            while requests and not over.wait(_PAUSE):
                for request in [self.store.get(key) for key in requests if self.store.check([key])]:
                    if request not in served:
                        self.store.set(request.decode(), session)
                        served.add(request)


@contextmanager
def _background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` in a thread inside the block; its event is set at the end."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _call(operation: Callable[[], Value]) -> Value:
    """The result of a store operation; raises `VotesError` if the store is gone."""
    try:
        return operation()
    except RuntimeError as error:
        raise VotesError(
            "the process that hands out shards cannot be reached any more; finished votes are kept: run the same "
            "command again to resume."
        ) from error
