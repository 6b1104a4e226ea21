"""The state of a run after each epoch, in one file that is replaced atomically; only an equal run resumes from it."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from multiguard.data import IndexedDataset, Pixels
from multiguard.data.sample import target_matrix
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.files import is_regular, mentions, sync, write_atomically
from multiguard.io.records import convert, decode_checked, encode_checked
from multiguard.io.writer import check_foreign
from multiguard.models.backbone import Backbone
from multiguard.models.card import WEIGHTS_FILE, ModelCard, read_card
from multiguard.models.model_folder import MARK
from multiguard.models.spec import CARD_FILE
from multiguard.train.config import TrainConfig
from multiguard.version import __version__

Settings = Mapping[str, Any]  # what a run was started with; a run with other settings does not resume it
Record = dict[str, Any]  # of a finished epoch

STATE_FILE = Path("state") / "last.safetensors"
LOG_FILE = "log.jsonl"
CURVE_FILE = "curve.png"
MODEL_FILES = (CARD_FILE, WEIGHTS_FILE, LOG_FILE, CURVE_FILE, STATE_FILE.as_posix())
_MARKS = {CARD_FILE: "architecture", WEIGHTS_FILE: MARK, STATE_FILE.as_posix(): "progress"}
_STATE: dict[str, Any] = {"format": "multiguard-training", "version": 1}
_LONGEST_VALUE = 40  # characters in a message; a hash is longer


def save_checkpoint(
    out: Path, settings: Settings, history: list[Record], parts: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write the state so that a kill at any moment leaves the old file or the new one intact."""
    tensors = {
        f"{part}/{name}": tensor.detach().cpu().clone().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    (out / STATE_FILE).parent.mkdir(parents=True, exist_ok=True)
    # One entry: safetensors writes several in a random order.
    progress = {"settings": settings, "history": history, "tensors": _checksum(tensors)}
    data = save(tensors, metadata={"progress": encode_checked(progress, **_STATE).decode()})
    write_atomically(out / STATE_FILE, lambda file: file.write(data))


def read_progress(out: Path) -> tuple[Settings, list[Record]] | None:
    """The settings of the run in this folder and the records of its epochs; None if no run has finished an epoch."""
    if not (out / STATE_FILE).is_file():
        return None
    try:
        with safe_open(out / STATE_FILE, framework="pt") as file:
            stored = _progress(file)
        return convert(stored["settings"], dict[str, Any]), convert(stored["history"], list[dict[str, Any]])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{out / STATE_FILE}: not a training state ({error}); train with --force, which starts again"
        ) from error


def read_tensors(out: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of the state in this folder, by part and name; one in which a bit was flipped raises `ModelError`."""
    with safe_open(out / STATE_FILE, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (the file is no mapping)
        stored = _progress(file)
    if stored["tensors"] != _checksum(tensors):
        raise ModelError(f"{out / STATE_FILE}: damaged (checksum mismatch); train with --force, which starts again")
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    return parts


def _progress(file: Any) -> dict[str, Any]:
    return decode_checked(file.metadata()["progress"].encode(), **_STATE)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of every tensor: its name, type, shape and values."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def new_card(
    backbone: Backbone,
    training: IndexedDataset | Pixels,
    validation: IndexedDataset | Pixels,
    size: tuple[int, int],
    config: TrainConfig,
    provenance: Mapping[str, Any],
) -> ModelCard:
    """The card of a run before its first epoch: all that decides its outcome, ids and targets as hashes."""
    record = {
        "recipe": config.record(),
        "train": _split_record(training),
        "val": _split_record(validation),
        "versions": {"multiguard": __version__, "torch": torch.__version__, "python": platform.python_version()},
        **provenance,
    }
    inputs = (tuple(training.label_names), size, backbone.mean, backbone.std, config.validation_noise)
    return ModelCard(backbone.architecture, *inputs, training=record)


def _split_record(split: IndexedDataset | Pixels) -> Record:
    targets = split.targets if isinstance(split, Pixels) else target_matrix(split)
    return {
        "name": split.name,
        "images": len(split.ids),
        "ids_sha256": hashlib.sha256("\0".join(split.ids).encode()).hexdigest(),
        "targets_sha256": hashlib.sha256(np.ascontiguousarray(targets).tobytes()).hexdigest(),
    }


def run_settings(card: ModelCard) -> Settings:
    """What a run must share with this card's to resume it: everything but the versions of the software."""
    record = {key: value for key, value in card.training.items() if key != "versions"}
    more = {"architecture": card.architecture, "image_size": card.image_size, "label_names": card.label_names}
    return dict(json.loads(json.dumps({**record, **more})))


def own_files(out: Path) -> list[Path]:
    """The files of a training in the folder, the card first; none unless one of them shows that training wrote it."""
    files = [path for name in MODEL_FILES if is_regular(path := out / name) and not path.parent.is_symlink()]
    return files if any(out / name in files and mentions(out / name, mark) for name, mark in _MARKS.items()) else []


def check_own_files(out: Path) -> None:
    """Raise `InvalidInputError` if a file or a link of others lies where training would write."""
    ours, state = own_files(out), (out / STATE_FILE).parent
    for path in (*([state] if state.is_symlink() else []), *(out / name for name in MODEL_FILES)):
        if os.path.lexists(path) and path not in ours:
            raise InvalidInputError(
                f"{path} was not written by training, so it is not replaced; move it, or name another folder with --out"
            )


def check_model_folder(folder: Path, *, force: bool) -> None:
    """Raise `InvalidInputError` if a folder without a model holds something else; `force` allows it."""
    check_own_files(folder)
    if not (own_files(folder) or force):
        check_foreign([folder], lambda path: path.name == STATE_FILE.parent.name and path.is_dir())


def discard_model(folder: Path) -> None:
    """Remove the files that training writes; the card goes first, so that a partial model is never taken for one.

    Files that show that the others are ours go last, and a power cut keeps this order.
    """
    files = own_files(folder)
    for names in ((CARD_FILE,), (LOG_FILE, CURVE_FILE), (WEIGHTS_FILE, STATE_FILE.as_posix())):
        for path in (folder / name for name in names):
            if path in files:
                path.unlink()
        sync(folder)


def check_same_run(out: Path, settings: Settings) -> None:
    """Raise `InvalidInputError` with the differences, unless the folder is free or holds a run with these settings."""
    check_own_files(out)
    progress = read_progress(out)
    if progress is None and not (out / CARD_FILE).is_file():
        return
    before, now = _flatten(run_settings(read_card(out)) if progress is None else progress[0]), _flatten(settings)
    if changes := [
        _change(key, before.get(key), now.get(key))
        for key in sorted(before | now, key=str)
        if before.get(key) != now.get(key)
    ]:
        fix = "Train with --force to replace it, or name another folder"
        raise InvalidInputError(f"{out} holds a run with other settings: {'; '.join(changes)}. {fix}")


def holds_other_run(out: Path, settings: Settings) -> bool:
    """Whether a run with these settings cannot resume in the folder: it holds another run or a damaged one."""
    try:
        check_same_run(out, settings)
        return False
    except (InvalidInputError, ModelError) as error:
        if isinstance(error.__cause__, OSError):  # an unreadable file may belong to this very run
            raise
        return True


def _flatten(settings: Settings, prefix: str = "") -> Record:
    """The settings by dotted names; hyperparameters go by their own names."""
    flat: Record = {}
    for key, value in settings.items():
        inner = "" if key == "recipe" and not prefix else f"{prefix}{key}."
        flat |= _flatten(value, inner) if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _change(key: str, before: Any, now: Any) -> str:
    texts = [json.dumps(value, ensure_ascii=False) for value in (before, now)]
    short = max(map(len, texts)) <= _LONGEST_VALUE
    return f"{key} was {texts[0]} and is {texts[1]}" if short else f"{key} has changed"
