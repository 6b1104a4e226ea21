"""Processes for work in Python, which the threads of one process cannot do at once.

They are started as commands. Processes of multiprocessing would import the caller's script again, which need not be
prepared for that.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, ParamSpec, TypeVar, cast

from multiguard.errors import MultiGuardError

P = ParamSpec("P")
Value = TypeVar("Value")

_COMMAND = [sys.executable, "-c", "from multiguard.io.workers import main; main()"]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Workers:
    """So many processes that call functions for the threads of this one; with 0 they are called here.

    A function must be one of a module, and its arguments and its value must be values that pickle takes. What it raises
    is raised here.

    >>> with Workers(1) as call:
    ...     call(divmod, 7, 2)
    (3, 1)
    """

    def __init__(self, count: int) -> None:
        self._all = [_start() for _ in range(count)]
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for worker in self._all:
            self._free.put(worker)

    def __enter__(self) -> "Workers":
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes, which wait for nothing but calls."""
        for worker in self._all:
            worker.kill()
        for worker in self._all:
            worker.communicate()

    def __call__(self, function: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value:
        """What the function returns; several threads may call at once, and wait where all processes are busy."""
        if not self._all:
            return function(*args, **kwargs)
        worker = self._free.get()
        try:
            _write(cast(IO[bytes], worker.stdin), (function, args, kwargs))
            done, outcome = pickle.load(cast(IO[bytes], worker.stdout))
        except (EOFError, BrokenPipeError) as error:
            raise MultiGuardError(
                f"a process that this one had started has died (exit code {worker.wait()}), perhaps for want of "
                "memory; run the same command again to resume"
            ) from error
        finally:
            self._free.put(worker)
        if not done:
            raise cast(Exception, outcome)
        return cast(Value, outcome)


def _start() -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": path}
    return subprocess.Popen(_COMMAND, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _write(file: IO[bytes], value: object) -> None:
    pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
    file.flush()


def main() -> None:
    """The process: it answers calls until nobody can send more. Ctrl-C is for the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a function prints is no answer
    while True:
        try:
            function, args, kwargs = pickle.load(calls)
        except EOFError:
            return
        _write(answers, _outcome(function, args, kwargs))


def _outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, object]:
    try:
        return True, function(*args, **kwargs)
    except Exception as error:
        return False, error
