"""Processes that vote together: the main one says what there is to do, and each takes the next shard when it is free.

Nobody waits for anybody but at the end, so that a slow picture holds up one process alone. What passes between them are
a few small numbers in the store that torchrun offers; votes pass through the folder. A process that was started anew
may find what others before it left in the store, so that nothing is believed there but the answer to its own question.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar
from uuid import uuid4

from multiguard.errors import VotesError
from multiguard.ranks import Rank, this_rank

Answer = TypeVar("Answer")

_PAUSE = 0.1  # seconds between two looks into the store


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

    Attributes:
        todo: The shards, taken and not.
    """

    def __init__(self, store: Store, rank: Rank, session: str, done: int, stop: Callable[[], bool]) -> None:
        self._store, self._rank, self._session, self._done, self._stop = store, rank, session, done, stop
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
        self._add("left")

    def wait(self, progress: Callable[[int], None]) -> None:
        """Return when everyone has left, or this process was asked to stop; tell meanwhile how many images are done."""
        while self._add("left", 0) < self._rank.count and not self._stop():
            progress(self._done + self._add("images", 0))
            time.sleep(_PAUSE)

    def _stopped(self) -> bool:
        return self._add("stop", int(self._stop())) > 0

    def _add(self, name: str, amount: int = 1) -> int:
        return _asked(lambda: self._store.add(f"{self._session}/{name}", amount))


class Team:
    """All the processes that vote on one dataset.

    Args:
        rank: Which of them this process is.
        store: What all of them see.
    """

    def __init__(self, rank: Rank, store: Store) -> None:
        self.rank, self._store = rank, store

    @classmethod
    def here(cls) -> "Team":
        """The team that torchrun has started; this process alone where it has not."""
        rank = this_rank()
        return cls(rank, _Own() if rank.count == 1 else _rendezvous())

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
            yield Work(self._store, self.rank, session, done, stop)
        finally:
            over.set()
            answering.join()

    def joined(self, stop: Callable[[], bool]) -> Work | None:
        """The work as another process finds it, once the main one has prepared the folder; None if asked to stop."""
        question = uuid4().hex
        _asked(lambda: self._store.set(_question(self.rank.number), question))
        while not _asked(lambda: self._store.check([question])):
            if stop():
                return None
            time.sleep(_PAUSE)
        session = _asked(lambda: self._store.get(question)).decode()
        return _asked(lambda: Work(self._store, self.rank, session, 0, stop))

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
