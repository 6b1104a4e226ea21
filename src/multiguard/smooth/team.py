"""Processes that vote together: the main one says what there is to do, and each takes the next shard when it is free.

Nobody waits for anybody but at the end, so that a slow image holds up one process alone. What passes between them are
a few small numbers in the store that torchrun offers; votes pass through the folder. A process that was started anew
may find what others before it left in the store, so that nothing is believed there but the answer to its own question.

Where a process dies, torchrun ends the others. Without torchrun nobody does: there the main process waits only for
those that give signs of life.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar
from uuid import uuid4

from multiguard.errors import VotesError
from multiguard.io.ranks import Rank, this_rank

Answer = TypeVar("Answer")

_PAUSE = 0.1  # seconds between two looks into the store
_BEAT = 5.0  # seconds between two signs of life
_PATIENCE = 120.0  # seconds without one after which a process is taken for dead


class Store(Protocol):
    """What is used of torch's stores."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number, 0 at first, and return the sum."""

    def set(self, key: str, value: str, /) -> None:
        """Put a value in place."""

    def get(self, key: str, /) -> bytes:
        """The value."""

    def check(self, keys: list[str], /) -> bool:
        """Whether there are values under all these keys."""


class _Own:
    """The store of a process that works alone."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values: dict[str, str] = {}

    def add(self, key: str, amount: int, /) -> int:
        self._numbers[key] = self._numbers.get(key, 0) + amount
        return self._numbers[key]

    def set(self, key: str, value: str, /) -> None:
        self._values[key] = value

    def get(self, key: str, /) -> bytes:
        return self._values[key].encode()

    def check(self, keys: list[str], /) -> bool:
        return all(key in self._values for key in keys)


class Work:
    """The shards that a team has before it: each is taken once, whoever asks first.

    Args:
        store: Where the team keeps its numbers.
        rank: Which of the team this process is.
        session: The name of this work, new each time that it is begun.
        done: How many images were done before.
        stop: Says whether to take no more.
        patience: For how many seconds a process may give no sign of life before it is given up; None for ever.

    Attributes:
        todo: The shards, taken and not.
    """

    def __init__(
        self, store: Store, rank: Rank, session: str, done: int, stop: Callable[[], bool], patience: float | None = None
    ) -> None:
        self._store, self._rank, self._session, self._done, self._stop = store, rank, session, done, stop
        self._patience = patience
        self.todo: list[int] = json.loads(store.get(f"{session}/todo"))

    def __iter__(self) -> Iterator[int]:
        """Shard after shard that nobody else has, until there is none or anyone of the team was asked to stop."""
        while not self._stopped():
            number = self._add("taken")
            if number > len(self.todo):
                return
            yield self.todo[number - 1]

    def count(self) -> int:
        """Say that one more image is done; how many are, of the whole team."""
        return self._done + self._add("images")

    def leave(self) -> None:
        """Say that this process has written all that it took."""
        self._add(f"left/{self._rank.number}")

    def wait(self, progress: Callable[[int], None]) -> None:
        """Return when everyone has left or is given up, or this process was asked to stop.

        Args:
            progress: Told meanwhile how many images are done.
        """
        seen: dict[int, tuple[int, float]] = {}
        while sum(self._awaited(number, seen) for number in range(1, self._rank.count)) and not self._stop():
            progress(self._done + self._add("images", 0))
            time.sleep(_PAUSE)

    @contextmanager
    def alive(self) -> Iterator[None]:
        """While the block lasts, the main process sees that this one lives."""
        over = threading.Event()
        beating = threading.Thread(target=self._beat, args=(over,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join()

    def _beat(self, over: threading.Event) -> None:
        with suppress(VotesError):  # the store is gone: whoever still needs it will say so
            self._add(f"beats/{self._rank.number}")
            while not over.wait(_BEAT):
                self._add(f"beats/{self._rank.number}")

    def _awaited(self, number: int, seen: dict[int, tuple[int, float]]) -> bool:
        """Whether another process is still at work; `seen` keeps its signs of life, and when the last one came."""
        if self._add(f"left/{number}", 0):
            return False
        beats, now = self._add(f"beats/{number}", 0), time.monotonic()
        if seen.get(number, (-1, now))[0] != beats:
            seen[number] = (beats, now)
        return self._patience is None or now - seen[number][1] < self._patience

    def _stopped(self) -> bool:
        return self._add("stop", int(self._stop())) > 0

    def _add(self, name: str, amount: int = 1) -> int:
        return _asked(lambda: self._store.add(f"{self._session}/{name}", amount))


class Team:
    """All the processes that vote on one dataset.

    Args:
        rank: Which of them this process is.
        store: What all of them see.
        patience: For how many seconds a process may give no sign of life before it is given up; None for ever.
    """

    def __init__(self, rank: Rank, store: Store, patience: float | None = None) -> None:
        self.rank, self.patience, self._store = rank, patience, store

    @classmethod
    def here(cls) -> "Team":
        """The team that torchrun has started; this process alone where it has not."""
        rank = this_rank()
        patience = _PATIENCE if rank.restarts is None else None  # torchrun sees by itself who is dead
        return cls(rank, _Own() if rank.count == 1 else _rendezvous(), patience)

    @contextmanager
    def leading(self, todo: Sequence[int], done: int, stop: Callable[[], bool]) -> Iterator[Work]:
        """The work as the main process hands it out, for as long as the block lasts.

        Args:
            todo: The shards to vote on.
            done: How many images are done already.
            stop: Says whether to take no more.
        """
        session = uuid4().hex
        _asked(lambda: self._store.set(f"{session}/todo", json.dumps(list(todo))))
        over = threading.Event()
        answering = threading.Thread(target=self._answer, args=(session, over), daemon=True)
        answering.start()
        try:
            yield Work(self._store, self.rank, session, done, stop, self.patience)
        finally:
            over.set()
            answering.join()

    @contextmanager
    def joined(self, stop: Callable[[], bool]) -> Iterator[Work | None]:
        """The work as another process finds it, once the main one has prepared the folder; None if asked to stop."""
        session = self._told(stop)
        if session is None:
            yield None
            return
        work = _asked(lambda: Work(self._store, self.rank, session, 0, stop))
        with work.alive():
            yield work

    def _told(self, stop: Callable[[], bool]) -> str | None:
        """The name of the work under way, as the main process answers; None if asked to stop before."""
        question = uuid4().hex
        _asked(lambda: self._store.set(_question(self.rank.number), question))
        while not _asked(lambda: self._store.check([question])):
            if stop():
                return None
            time.sleep(_PAUSE)
        return _asked(lambda: self._store.get(question)).decode()

    def _answer(self, session: str, over: threading.Event) -> None:
        """Tell everyone who asks which work is under way: those who come late, and those started anew."""
        others, told = range(1, self.rank.count), set[str]()
        with suppress(RuntimeError):  # the store is gone: whoever still needs it will say so
            while others and not over.wait(_PAUSE):
                for number in others:
                    told.add(self._answered(number, session, told))

    def _answered(self, number: int, session: str, told: set[str]) -> str:
        """The question of another process, answered if it has not been; empty where there is none."""
        if not self._store.check([_question(number)]):
            return ""
        question = self._store.get(_question(number)).decode()
        if question not in told:
            self._store.set(question, session)
        return question


def _question(number: int) -> str:
    """Where a process puts the name under which it waits for an answer."""
    return f"multiguard/question/{number}"


def _rendezvous() -> Store:
    from torch.distributed.rendezvous import rendezvous

    found: Store = next(iter(rendezvous("env://")))[0]
    return found


def _asked(question: Callable[[], Answer]) -> Answer:
    """What the store answers; where it is gone, `VotesError`."""
    try:
        return question()
    except RuntimeError as error:
        raise VotesError(
            "the process that hands out shards cannot be reached any more; what was voted on is kept, and the same "
            "command goes on."
        ) from error
