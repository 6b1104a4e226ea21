"""Who is told what a run does, and asked whether it shall go on."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from multiguard.pipeline.certifying import Progressed


def _never() -> AbstractContextManager[Callable[[], bool]]:
    return nullcontext(lambda: False)


def _silent(unit: str) -> AbstractContextManager[Progressed]:
    return nullcontext(lambda doing, done, total: None)


@dataclass(frozen=True)
class Watcher:
    """Who is told what goes on; nobody, by default.

    Attributes:
        on_step: Called with a step's name and what is done with it and why, in words.
        on_epoch: Called with the record of each epoch of training.
        bar: Called with what is counted, opens a bar and gives a function that moves it.
        stopping: Opened around work that can be stopped between two parts of it, gives a function that says whether to.
    """

    on_step: Callable[[str, str], None] = lambda name, words: None
    on_epoch: Callable[[dict[str, Any]], None] = lambda record: None
    bar: Callable[[str], AbstractContextManager[Progressed]] = _silent
    stopping: Callable[[], AbstractContextManager[Callable[[], bool]]] = _never
