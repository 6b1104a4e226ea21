"""run.json: the inputs of each step of a run, the files it wrote, and its cost."""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, read_regular, real_path, write_atomically
from multiguard.io.records import convert, decode_json, encode_json
from multiguard.pipeline.folders import RECORD_FILE

_FORMAT = "multiguard-run"
_VERSION = 1
_DIGEST_LENGTH = len(hashlib.sha256().hexdigest())
_PROCESS = Path("/proc/self")


@dataclass(frozen=True)
class Cost:
    """What a piece of work took."""

    seconds: float  # wall-clock time
    device: str  # the GPU if one was used, else the number of CPU cores
    memory: int | None  # the peak bytes of this process; None where the system does not tell
    device_memory: int | None  # the peak bytes that torch held on the GPU; None if none was used


class Meter:
    """Measures time and peak memory from when it is made; earlier peaks do not count."""

    def __init__(self) -> None:
        self._resets = _reset_peak()
        if (cuda := _used_cuda()) is not None:
            cuda.reset_peak_memory_stats()
        self._started = time.perf_counter()

    def read(self) -> Cost:
        """The cost up to now."""
        seconds = round(time.perf_counter() - self._started, 2)
        cuda = _used_cuda()
        held = 0 if cuda is None else cuda.max_memory_allocated()
        device = cuda.get_device_name() if cuda is not None and held else f"CPU, {os.cpu_count()} cores"
        return Cost(seconds, device, _peak() if self._resets else None, held or None)


def _reset_peak() -> bool:
    """Reset the peak memory of this process; whether the system can."""
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
        return True
    return False


def _peak() -> int | None:
    line = re.search(r"^VmHWM:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    return None if line is None else 1024 * int(line[1])


def _used_cuda() -> Any:
    """torch.cuda if a GPU has been used; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


@dataclass(frozen=True)
class StepRecord:
    """One step: its inputs and, once it has finished, its files.

    >>> StepRecord({"vote.draws": 100}).finished
    False
    """

    inputs: Mapping[str, Any]  # everything that decides the outcome, by name
    outputs: Mapping[str, str] | None = (
        None  # the sha256 of each file, by its path in the run folder; None if unfinished
    )
    seconds: float | None = None  # the time of all starts with these inputs; None before the first has ended
    device: str | None = None  # where it ran last
    memory: int | None = None  # the peak bytes of the process; None where the system does not tell
    device_memory: int | None = None  # the peak bytes on a GPU; None if none was used
    untimed: int = 0  # how many starts were killed before they could record their time; `seconds` lacks them

    @property
    def finished(self) -> bool:
        """Whether the step has finished."""
        return self.outputs is not None

    def started(self, inputs: Mapping[str, Any]) -> "StepRecord":
        """The record of a step that starts now; the start counts as untimed until its cost is added."""
        return replace(self, inputs=inputs, outputs=None, untimed=self.untimed + 1)

    def with_cost(self, cost: Cost) -> "StepRecord":
        """The record after a start of this cost has ended."""
        return replace(
            self,
            seconds=round((self.seconds or 0.0) + cost.seconds, 2),
            device=cost.device,
            memory=max(filter(None, (self.memory, cost.memory)), default=None),
            device_memory=max(filter(None, (self.device_memory, cost.device_memory)), default=None),
            untimed=self.untimed - 1,
        )


@dataclass(frozen=True)
class RunRecord:
    """The steps of a run, by name.

    >>> list(RunRecord().with_step("vote", StepRecord({})).steps)
    ['vote']
    """

    command: str = ""  # the last command
    certified: bool = False  # whether every certificate that the recipe in the folder asks for has been made
    steps: Mapping[str, StepRecord] = field(default_factory=dict)  # the steps that were started

    def with_step(self, name: str, step: StepRecord) -> "RunRecord":
        """The record with this step in place of the one of that name."""
        return replace(self, steps={**self.steps, name: step})


def read_record(run: Path) -> RunRecord:
    """The record of a run folder; an empty one where there is none, `InvalidInputError` where it is damaged.

    >>> read_record(Path("no-such-run")).steps
    {}
    """
    path = run / RECORD_FILE
    if not os.path.lexists(path):
        return RunRecord()
    try:
        stored = decode_json(read_regular(path), dict[str, Any])
        if (stored.pop("format", None), stored.pop("version", None)) != (_FORMAT, _VERSION):
            raise ValueError(f"expected format {_FORMAT}, version {_VERSION}")
        record = convert(stored, RunRecord)
        _check_outputs(run, (name for step in record.steps.values() for name in step.outputs or {}))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is damaged ({error}); name another run folder, or delete this one") from error
    return record


def _check_outputs(run: Path, names: Iterable[str]) -> None:
    """Raises unless every output is in the run folder: altered outputs are removed before they are made again."""
    home = real_path(run)
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"the output '{name}' lies outside the run folder")
        if not real_path((run / name).parent).is_relative_to(home):
            raise ValueError(f"the output '{name}' lies behind a link that leads out of the run folder")


def write_record(run: Path, record: RunRecord) -> None:
    """Write the record in one atomic step."""
    text = encode_json({"format": _FORMAT, "version": _VERSION, **vars(record)})
    write_atomically(run / RECORD_FILE, lambda file: file.write(text + b"\n"))


def output_hashes(run: Path, paths: Iterable[Path]) -> dict[str, str]:
    """The sha256 of each file, by its path in the run folder."""
    return {path.relative_to(run).as_posix(): file_checksum(path) for path in sorted(paths)}


def altered_outputs(run: Path, step: StepRecord) -> list[str]:
    """The outputs of a step that are gone or no longer what it wrote."""
    return [
        name
        for name, digest in (step.outputs or {}).items()
        if not (run / name).is_file() or file_checksum(run / name) != digest
    ]


def changed_inputs(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """The inputs that differ, each by its name and in words."""
    old, new = (json.loads(json.dumps(inputs)) for inputs in (before, now))
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return {name: _difference(name, old.get(name), new.get(name)) for name in names}


def _difference(name: str, before: Any, now: Any) -> str:
    if any(isinstance(value, str) and len(value) == _DIGEST_LENGTH for value in (before, now)):
        return f"{name} has changed"
    return f"{name} was {_brief(before)} and is {_brief(now)}"


def _brief(value: Any, most: int = 40) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."
