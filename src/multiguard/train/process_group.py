"""How the processes of a training meet: those that torchrun restarted never look for those that died.

torchrun keeps one store over all restarts, and with it the addresses of processes that are gone: a restarted process
that reads one of them waits for it until the time limit. So the processes of each start agree on a name of their own
first, and meet under it. A process trusts only the reply to its own request, which no earlier start can have given.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

from accelerate import InitProcessGroupKwargs
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import register_rendezvous_handler, rendezvous

_SCHEME = "multiguard"
_PAUSE = 0.05  # seconds between two looks at the store


def process_group(timeout: timedelta) -> InitProcessGroupKwargs:
    """How to make the group of all processes, whose collectives fail after this time."""
    return InitProcessGroupKwargs(init_method=f"{_SCHEME}://", timeout=timeout)


def _meet(url: str, timeout: timedelta, **_: Any) -> Iterator[tuple[Store, int, int]]:
    """The store of this start, the number of this process and that of all; torch calls it to make a group."""
    store, rank, processes = next(rendezvous("env://", timeout=timeout))
    name = _lead(store, processes, timeout) if rank == 0 else _join(store, rank, timeout)
    yield PrefixStore(name, store), rank, processes


def _lead(store: Store, processes: int, timeout: timedelta) -> str:
    """A new name, once every other process knows it."""
    name, end = uuid4().hex, time.monotonic() + timeout.total_seconds()
    while (joined := store.add(name, 0)) < processes - 1:
        if time.monotonic() > end:
            raise TimeoutError(f"{joined + 1} of {processes} processes started within {timeout}")
        for key in map(_request, range(1, processes)):
            if store.check([key]):
                store.set(store.get(key).decode(), name)
        time.sleep(_PAUSE)
    return name


def _join(store: Store, rank: int, timeout: timedelta) -> str:
    """The name that the main process replies with."""
    request = uuid4().hex
    store.set(_request(rank), request)
    store.wait([request], timeout)
    name: str = store.get(request).decode()
    store.add(name, 1)
    return name


def _request(rank: int) -> str:
    return f"{_SCHEME}/request/{rank}"


register_rendezvous_handler(_SCHEME, _meet)  # type: ignore[no-untyped-call]
