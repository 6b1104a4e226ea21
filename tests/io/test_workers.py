"""Processes answer the calls of threads, and die with the process that started them."""

import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multiguard.errors import MultiGuardError
from multiguard.io.workers import Workers


def test_calls_of_threads():
    """Each thread gets the answer to its own call."""
    with Workers(2) as call, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: call(math.factorial, number), range(40)))
        others = set(threads.map(lambda _: call(os.getpid), range(20)))
    assert found == [math.factorial(number) for number in range(40)]
    assert os.getpid() not in others
    assert 1 <= len(others) <= 2


def test_no_process():
    """Without processes functions run here."""
    with Workers(0) as call:
        assert call(os.getpid) == os.getpid()


def test_raised_error():
    """What a function raises is raised here, and the process goes on; what it prints is no answer."""
    with Workers(1) as call:
        with pytest.raises(ValueError, match="math domain"):
            call(math.sqrt, -1.0)
        assert call(print, "printed by a worker") is None
        assert call(math.sqrt, 4.0) == 2


def test_dead_process():
    """A process that dies is reported with its exit code."""
    with Workers(1) as call, pytest.raises(MultiGuardError, match="exit code 3"):
        call(os._exit, 3)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_end_of_processes():
    """No process is left behind."""
    with Workers(2) as call:
        pids = {Path(f"/proc/{call(os.getpid)}") for _ in range(8)}
    deadline = time.monotonic() + 30
    while any(path.exists() for path in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(path.exists() for path in pids)
