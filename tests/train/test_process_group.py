"""Processes that start again meet each other, and none that died."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from multiguard.train.process_group import _join, _lead

LIMIT = timedelta(seconds=30)


def start(store, processes):
    """The name under which each of these processes meets the others."""
    with ThreadPoolExecutor(processes) as threads:
        joined = [threads.submit(_join, store, rank, LIMIT) for rank in range(1, processes)]
        led = threads.submit(_lead, store, processes, LIMIT)
        return [led.result(), *(each.result() for each in joined)]


def test_new_name(monkeypatch):
    """In a store that outlives two starts, one of them unfinished, all processes of a start have one new name."""
    monkeypatch.setattr("multiguard.train.process_group._PAUSE", 0.001)
    store = HashStore()
    store.set("multiguard/request/1", "of a process that died before it was answered")
    first, second = start(store, 3), start(store, 3)
    assert (len({*first}), len({*second})) == (1, 1)
    assert first[0] != second[0]


def test_missing_process():
    """The main process gives up after the time limit, though a process that died had asked."""
    store = HashStore()
    store.set("multiguard/request/1", "of a process that died before it was answered")
    with pytest.raises(TimeoutError, match="1 of 2 processes started within 0:00:00"):
        _lead(store, 2, timedelta(milliseconds=200))
