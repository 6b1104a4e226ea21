"""A model described once: a folder that holds its files and all options that a command would need.

Files of the model are copied into the folder, and checked by their sha256 when it is used. Code is not copied: the
folder names it, and it runs only for the user who wrapped it, on the machine where that was done.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from multiguard.data.label_table import read_lines
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.files import file_checksum, is_regular, mentions, read_hashed, real_path
from multiguard.io.outputs import Outputs
from multiguard.io.records import convert, decode_checked, encode_checked
from multiguard.models import Classifier
from multiguard.models.config import ModelConfig
from multiguard.models.onnx_file import onnx_files
from multiguard.models.spec import parse_spec
from multiguard.pipeline.job_model import load_model

WRAP_FILE, _LABELS, _HF = "wrap.json", "labels.txt", "hf"
_FORMAT: dict[str, Any] = {"format": "multiguard-wrap", "version": 2}
_FILES = ("weights", "denoiser")  # the options that name a file of the model
_MOST = 1 << 20  # bytes of wrap.json


@dataclass(frozen=True)
class WrapJob:
    """Which model to wrap, and what to say of it."""

    model: ModelConfig
    out: Path
    size: int | None = None  # height and width of its images; None for its own
    noise: str | None = None  # the noise to vote with, as text; None to leave it open
    force: bool = False


@dataclass(frozen=True)
class Wrapped:
    """The content of wrap.json."""

    spec: str  # the model; its file or folder by its name here
    weights: str | None = None
    output: Literal["logits", "probabilities"] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    detector: str | None = None
    denoiser: str | None = None
    size: int | None = None
    noise: str | None = None
    code_hash: str | None = None  # of the user's files, where the model is code
    files: Mapping[str, str] = field(default_factory=dict)  # the sha256 of each file, by its path from here

    def check(self, classifier: Classifier) -> None:
        """Raises `ModelError` if the classifier is made by other code than the one that was wrapped."""
        if self.code_hash is not None and classifier.code_hash != self.code_hash:
            raise ModelError(f"{self.spec}: its code has changed since it was wrapped; wrap it again")


def wrap(job: WrapJob) -> Classifier:
    """Write the folder, once the model has been loaded with these options; returns the classifier.

    >>> wrap(WrapJob(ModelConfig("timm:resnet10t"), Path("mymodel")))
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: timm:resnet10t does not say which score belongs to which label; ...
    """
    model, parsed = job.model, parse_spec(job.model.spec)
    if parsed.kind in ("folder", "network"):
        raise InvalidInputError(f"{model.spec} is a model folder already, or a network to train: it needs no wrapping")
    for option, file in (("weights", model.weights), ("denoiser", model.denoiser)):
        if file is not None and not file.is_file():
            raise InvalidInputError(f"--{option} {file}: no such file; a wrapped model holds a copy of it")
    sources = _sources(parsed.kind, parsed.target, model)
    hashes = {name: file_checksum(path) for name, path in sources.items()}
    classifier = load_model(model, job.size, job.noise)
    names = classifier.label_names  # code that does not say how many is refused here
    names = names if model.labels is None else tuple(read_lines(model.labels))  # of a detector, dropped classes too
    folders = (job.out, job.out / _HF) if parsed.kind == "hf" else (job.out,)
    request: dict[str, Any] = {"model": repr(model), "size": job.size, "noise": job.noise, "code": classifier.code_hash}
    request |= {"files": list(hashes.values()), "labels": list(names)}
    head = job.out / WRAP_FILE
    with Outputs(head, "a wrapped model", request, folders=folders, force=job.force, recognise=_is_wrap) as outputs:
        if not outputs.finished or job.force:
            for name, path in sources.items():
                target = job.out / name
                _copy(path, outputs.stage(target.parent) / target.name, hashes[name])
            labels = "".join(f"{name}\n" for name in names).encode()
            (outputs.stage(job.out) / _LABELS).write_bytes(labels)
            hashes[_LABELS] = hashlib.sha256(labels).hexdigest()
            card = _card(job, parsed.kind, parsed.target, classifier, hashes)
            (outputs.stage(job.out) / WRAP_FILE).write_bytes(encode_checked(card, **_FORMAT))
            outputs.publish()
        if parsed.kind == "code":
            _trust(outputs.head_hash)
    return classifier


def unwrap(model: ModelConfig) -> tuple[ModelConfig, Wrapped | None]:
    """The model that a wrapped folder stands for, its files checked, and the card; any other model as it is."""
    folder = Path(model.spec)
    path = folder / WRAP_FILE
    if not path.is_file():
        return model, None
    if model != ModelConfig(model.spec):
        raise InvalidInputError(f"{folder} says everything of its model; leave out the other options of the model")
    try:
        content, card_hash = read_hashed(path, _MOST)
        card = convert(decode_checked(content, **_FORMAT), Wrapped)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be used: {error}; wrap the model again") from error
    home = real_path(folder)
    for name, digest in card.files.items():
        inside = is_regular(home / name) and real_path(home / name).is_relative_to(home)
        if not inside or file_checksum(home / name) != digest:
            raise ModelError(f"{folder / name} is missing or not as it was when it was wrapped; wrap the model again")
    kind, _, target = card.spec.partition(":")
    spec = f"{kind}:{home / target}" if kind in ("onnx", "hf") else card.spec
    if kind not in ("onnx", "hf", "timm") and not _trusted(card_hash).is_file():
        raise InvalidInputError(
            f"{folder} names code ({card.spec}) and was not wrapped by you here; if you trust it, wrap it yourself"
        )
    files: dict[str, Any] = {name: home / file for name in _FILES if (file := getattr(card, name))}
    same = {name: getattr(card, name) for name in ("output", "mean", "std", "detector")}
    return ModelConfig(spec, home / _LABELS, **files, **same), card


def _sources(kind: str, target: str, model: ModelConfig) -> dict[str, Path]:
    """The files to copy, by their path in the folder."""
    named = {_copied(name, file): file for name in _FILES if (file := getattr(model, name)) is not None}
    if kind == "onnx":
        return {**{path.name: path for path in onnx_files(target)}, **named}
    if kind == "hf":
        kinds = (".json", ".safetensors", ".txt", ".model")
        own = {f"{_HF}/{path.name}": path for path in sorted(Path(target).glob("*")) if path.suffix in kinds}
        return {**own, **named}
    return named


def _copy(source: Path, target: Path, digest: str) -> None:
    """Copy a file of the model; raises `ModelError` unless the copy has this hash, that of the model that was tried."""
    shutil.copyfile(source, target)
    if file_checksum(target) != digest:
        raise ModelError(f"{source} has changed while it was wrapped; wrap the model again")


def _copied(name: str, file: Path) -> str:
    """How the file of this option is called in the folder."""
    return f"{name}{file.suffix}"


def _card(job: WrapJob, kind: str, target: str, classifier: Classifier, hashes: Mapping[str, str]) -> Wrapped:
    model = job.model
    named: dict[str, Any] = {name: _copied(name, file) for name in _FILES if (file := getattr(model, name)) is not None}
    specs = {"onnx": f"onnx:{Path(target).name}", "hf": f"hf:{_HF}", "timm": f"timm:{target}"}
    return Wrapped(
        specs.get(kind) or _absolute(target),
        **named,
        **{name: getattr(model, name) for name in ("output", "mean", "std", "detector")},
        size=job.size,
        noise=job.noise,
        code_hash=classifier.code_hash,
        files=hashes,
    )


def _absolute(target: str) -> str:
    """Code by its name, a file of code by its absolute path."""
    module, _, name = target.rpartition(":")
    return f"{real_path(Path(module))}:{name}" if module.endswith(".py") else target


def _is_wrap(path: Path) -> bool:
    return mentions(path, _FORMAT["format"])


def _trusted(card_hash: str) -> Path:
    """The file whose presence says that this user wrapped the folder with exactly this card here."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "multiguard" / "wrapped" / card_hash


def _trust(card_hash: str) -> None:
    mark = _trusted(card_hash)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def fitting_size(card: Wrapped | None, size: int | None) -> int | None:
    """The size of images that a command was given, or that of the wrapped model; two that differ are refused."""
    own = None if card is None else card.size
    if own is not None and size not in (None, own):
        raise InvalidInputError(f"the model takes images of {own}x{own}; leave out the size {size}")
    return own if size is None else size
