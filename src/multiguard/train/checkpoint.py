"""The state of a run after an epoch, in one file replaced in one step: tensors, and the rest as JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from multiguard.errors import ModelError
from multiguard.io.files import write_atomically
from multiguard.io.records import decode_json

STATE_FILE = Path("state") / "last.safetensors"


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        settings: What the run was started with; a run with other settings does not continue it.
        history: One record for each epoch done.
    """

    settings: Mapping[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def epochs_done(self) -> int:
        """How many epochs are behind."""
        return len(self.history)


def save_state(out: Path, progress: Progress, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write the state so that a kill at any moment leaves the old one or the new one whole."""
    tensors = {
        f"{part}/{name}": tensor.detach().cpu().clone().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    text = json.dumps({"settings": progress.settings, "history": progress.history})
    (out / STATE_FILE).parent.mkdir(parents=True, exist_ok=True)
    data = save(tensors, metadata={"progress": text})
    write_atomically(out / STATE_FILE, lambda file: file.write(data))


def read_progress(out: Path) -> Progress | None:
    """Where the run in this folder stands, or None where no run has finished an epoch there."""
    path = out / STATE_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return decode_json(file.metadata()["progress"], Progress)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: not a training state ({error}); delete it to start again") from error


def read_tensors(out: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of the state in this folder, by part and name, as `save_state` was given them."""
    parts: dict[str, dict[str, Tensor]] = {}
    with safe_open(out / STATE_FILE, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 (the file is no mapping)
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = file.get_tensor(key)
    return parts


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and step counts, named by the parameter's number."""
    state = optimizer.state_dict()["state"]
    return {f"{number}/{key}": value for number, slots in state.items() for key, value in slots.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put the moments and step counts back where `optimizer_tensors` took them from."""
    whole = optimizer.state_dict()
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition("/")
        slots.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({**whole, "state": slots})
