"""What a step of a run takes: time, memory, and on which device."""

import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROCESS = Path("/proc/self")


@dataclass(frozen=True)
class Cost:
    """What was taken between the start of a meter and its reading.

    Attributes:
        seconds: The time by the clock.
        device: The GPU where one was used, else the number of processor cores.
        memory: The most bytes that this process held at once; None where the system does not tell it apart.
        device_memory: The most bytes that torch held on the GPU at once; None where none was used.
    """

    seconds: float
    device: str
    memory: int | None
    device_memory: int | None


class Meter:
    """Reads the peaks since it was made; peaks from before do not count."""

    def __init__(self) -> None:
        self._tells_apart = _forget_peak()
        if (cuda := _used_cuda()) is not None:
            cuda.reset_peak_memory_stats()
        self._started = time.perf_counter()

    def read(self) -> Cost:
        """The cost up to now."""
        seconds = round(time.perf_counter() - self._started, 2)
        cuda = _used_cuda()
        held = 0 if cuda is None else cuda.max_memory_allocated()
        device = cuda.get_device_name() if cuda is not None and held else f"CPU, {os.cpu_count()} cores"
        return Cost(seconds, device, _peak() if self._tells_apart else None, held or None)


def _forget_peak() -> bool:
    """Let the system count the peak of this process anew; whether it does."""
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
        return True
    return False


def _peak() -> int | None:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    return None if found is None else 1024 * int(found[1])


def _used_cuda() -> Any:
    """torch.cuda, where something has imported torch and a GPU has been used; this never imports it."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
