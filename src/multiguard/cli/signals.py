"""Ctrl-C and SIGTERM: one line that says how to go on, at once or after what is under way, and the usual exit code."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import typer

from multiguard.io.ranks import this_rank

# Seconds in which a signal that comes again is one: a scheduler may signal all processes while torchrun passes it on.
_ONE_REQUEST = 2.0
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "asked to end"}


class Stopped(KeyboardInterrupt):
    """A signal asked the command to stop.

    Attributes:
        number: Which signal.
        said: Whether the user has been told already.
    """

    def __init__(self, number: int, *, said: bool = False) -> None:
        super().__init__()
        self.number, self.said = number, said

    @property
    def exit_code(self) -> int:
        """What a shell takes for "ended by this signal": 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number

    @property
    def words(self) -> str:
        """What happened, in words."""
        return _WORDS[signal.Signals(self.number)]


@contextmanager
def immediate_stop() -> Iterator[None]:
    """While the block lasts, either signal raises `Stopped` wherever the program is."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    with _handled(stop):
        yield


@contextmanager
def graceful_stop(doing: str) -> Iterator[Callable[[], bool]]:
    """A function that says whether to stop; the block then ends in its own time, and `Stopped` is raised after it.

    The first signal is answered with a line; a second one raises `Stopped` at once. The same signal again within two
    seconds is the first one, delivered twice.

    Args:
        doing: What is still done after the first signal, in words.
    """
    asked: list[tuple[int, float]] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if asked and asked[0][0] == number and time.monotonic() - asked[0][1] < _ONE_REQUEST:
            return
        asked.append((number, time.monotonic()))
        if len(asked) > 1:
            raise Stopped(number, said=True)
        _say(f"{Stopped(number).words}; {doing} (again to stop at once), and the same command goes on")

    with _handled(stop):
        yield lambda: bool(asked)
    if asked:
        raise Stopped(asked[0][0], said=True)


def _say(line: str) -> None:
    """A line on stderr, above the bar where one is shown; of processes that work together only the main one speaks."""
    if this_rank().is_main:
        with suppress(RuntimeError):  # the signal came in the middle of another write
            sys.stderr.write(f"multiguard: {line}\n")
            sys.stderr.flush()


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Both signals go to this handler while the block lasts; where signals cannot be caught, all is as it was."""
    before: dict[signal.Signals, Any] = {}
    try:
        for number in _WORDS:
            with suppress(ValueError):  # not in the main thread
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def stopped_line(stopped: KeyboardInterrupt, more: str) -> typer.Exit:
    """Tell the user, who does not know yet, that the command was stopped, and end with the signal's exit code."""
    told = stopped if isinstance(stopped, Stopped) else Stopped(signal.SIGINT)
    if not told.said:
        _say(f"{told.words}; {more}")
    return typer.Exit(told.exit_code)
