"""Ctrl-C and SIGTERM: one line that says how to resume, and the exit code that shells expect."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import typer

from multiguard.io.lock import this_rank

# Seconds within which the same signal counts once: a scheduler may signal all processes while torchrun passes it on.
_ONE_REQUEST = 2.0
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Stopped(KeyboardInterrupt):
    """A signal that stops the command, and whether a message about it has been printed."""

    def __init__(self, number: int, *, announced: bool = False) -> None:
        super().__init__()
        self.announced, self.text = announced, _WORDS[signal.Signals(number)]
        self.exit_code = 128 + number  # 130 for Ctrl-C, 143 for SIGTERM


@contextmanager
def immediate_stop() -> Iterator[None]:
    """While the block lasts, either signal raises `Stopped` wherever the program is."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    with _handled(stop):
        yield


@contextmanager
def graceful_stop(doing: str) -> Iterator[Callable[[], bool]]:
    """A function that says whether to stop; the block then ends by itself, and `Stopped` is raised after it.

    The first signal prints a line, with what is still done; a second one raises `Stopped` at once. The same signal
    within two seconds is the first one, delivered twice.
    """
    received: list[tuple[int, float]] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if received and received[0][0] == number and time.monotonic() - received[0][1] < _ONE_REQUEST:
            return
        received.append((number, time.monotonic()))
        if len(received) > 1:
            raise Stopped(number, announced=True)
        _print(f"{Stopped(number).text}; {doing} (again to stop at once), and the same command resumes")

    with _handled(stop):
        yield lambda: bool(received)
    if received:
        raise Stopped(received[0][0], announced=True)


def _print(line: str) -> None:
    """Print a line on stderr, above the progress bar if there is one; only the main process prints."""
    if this_rank().is_main:
        with suppress(RuntimeError):  # the signal came in the middle of another write
            sys.stderr.write(f"multiguard: {line}\n")
            sys.stderr.flush()


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Both signals go to this handler while the block lasts, if they can be caught."""
    before: dict[signal.Signals, Any] = {}
    try:
        for number in _WORDS:
            with suppress(ValueError):  # not in the main thread
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def stopped_exit(stopped: KeyboardInterrupt, advice: str) -> typer.Exit:
    """The exit of a stopped command, announced if it has not been."""
    stop = stopped if isinstance(stopped, Stopped) else Stopped(signal.SIGINT)
    if not stop.announced:
        _print(f"{stop.text}; {advice}")
    return typer.Exit(stop.exit_code)
