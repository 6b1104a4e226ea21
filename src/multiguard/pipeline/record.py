"""run.json: what each step of a run was given, what it left behind, and what it took."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, write_atomically
from multiguard.io.records import convert, decode_json
from multiguard.pipeline.cost import Cost

RECORD_FILE = "run.json"
_FORMAT = "multiguard-run"
_VERSION = 1


@dataclass(frozen=True)
class StepRecord:
    """One step as it was begun, and, where it has ended, what it left behind.

    Attributes:
        inputs: All that decides the outcome, by name.
        outputs: The sha256 of each file, by its path in the run folder; None while the step has not ended.
        seconds: How long it took, over all starts with these inputs; None where none of them has told yet.
        device: Where it ran last.
        memory: The most bytes that the process held at once; None where the system does not tell it.
        device_memory: The most bytes that were held on a GPU at once; None where none was used.
        untimed: How many starts were killed before they could tell how long they took: not counted in `seconds`.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, str] | None = None
    seconds: float | None = None
    device: str | None = None
    memory: int | None = None
    device_memory: int | None = None
    untimed: int = 0

    @property
    def ended(self) -> bool:
        """Whether the step has come to its end."""
        return self.outputs is not None

    def begun_again(self, inputs: Mapping[str, Any]) -> "StepRecord":
        """The step as it is gone on with; the start counts as untimed until it tells otherwise."""
        return replace(self, inputs=inputs, outputs=None, untimed=self.untimed + 1)

    def having_taken(self, cost: Cost) -> "StepRecord":
        """The step after a start of this cost has come to an end, or to a stop."""
        return replace(
            self,
            seconds=round((self.seconds or 0.0) + cost.seconds, 2),
            device=cost.device,
            memory=_most(self.memory, cost.memory),
            device_memory=_most(self.device_memory, cost.device_memory),
            untimed=self.untimed - 1,
        )


def _most(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


@dataclass(frozen=True)
class RunRecord:
    """The steps of a run, by name.

    Attributes:
        command: What was last asked for.
        certified: Whether the recipe beside the record was followed up to its last certificate: not while steps of it
            are still to be done.
        steps: The steps that were begun.
    """

    command: str = ""
    certified: bool = False
    steps: Mapping[str, StepRecord] = field(default_factory=dict)

    def with_step(self, name: str, step: StepRecord) -> "RunRecord":
        """The record with this step in place of what it says of that name."""
        return replace(self, steps={**self.steps, name: step})


def read_record(run: Path) -> RunRecord:
    """The record of a run folder; an empty one where there is none, `InvalidInputError` where it is damaged."""
    path = run / RECORD_FILE
    if not path.is_file():
        return RunRecord()
    try:
        stored = decode_json(path.read_bytes(), dict[str, Any])
        if (stored.pop("format"), stored.pop("version")) != (_FORMAT, _VERSION):
            raise ValueError(f"not of format {_FORMAT}, version {_VERSION}")
        record = convert(stored, RunRecord)
        _require_inside(run, (name for step in record.steps.values() for name in step.outputs or {}))
        return record
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path} is damaged ({error}); name another run folder, or delete this one") from error


def _require_inside(run: Path, names: Iterable[str]) -> None:
    """Pass only if every output lies in the run folder: what is altered is removed before it is made anew."""
    home = run.resolve()
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"the output '{name}' lies outside the run folder")
        if not (run / name).parent.resolve().is_relative_to(home):
            raise ValueError(f"the output '{name}' lies behind a link that leads out of the run folder")


def write_record(run: Path, record: RunRecord) -> None:
    """Put the record in place in one step."""
    text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(record)}, indent=1, ensure_ascii=False)
    write_atomically(run / RECORD_FILE, lambda file: file.write(f"{text}\n".encode()))


def output_hashes(run: Path, paths: Iterable[Path]) -> dict[str, str]:
    """The sha256 of each file, by its path in the run folder."""
    return {path.relative_to(run).as_posix(): file_checksum(path) for path in sorted(paths)}


def altered(run: Path, step: StepRecord) -> list[str]:
    """The outputs of a step that are gone, or are not what it wrote."""
    return [
        name
        for name, digest in (step.outputs or {}).items()
        if not (run / name).is_file() or file_checksum(run / name) != digest
    ]


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """What differs between two sets of inputs, each by its name and in words."""
    was, is_ = (json.loads(json.dumps(inputs)) for inputs in (before, now))
    names = sorted(name for name in {*was, *is_} if was.get(name) != is_.get(name))
    return {name: _difference(name, was.get(name), is_.get(name)) for name in names}


def _difference(name: str, before: Any, now: Any) -> str:
    if any(isinstance(value, str) and len(value) == _DIGEST for value in (before, now)):
        return f"{name} has changed"
    return f"{name} was {_brief(before)} and is {_brief(now)}"


_DIGEST = len(hashlib.sha256().hexdigest())


def _brief(value: Any, most: int = 40) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."
