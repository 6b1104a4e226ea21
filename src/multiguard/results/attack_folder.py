"""An attack folder: what attacks reached on every image, beside what was proved of it; whole, or refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate.attacked import AttackedImage, Attacks, Reached
from multiguard.evaluate.certifier import check_methods
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.judged import Goal, goals
from multiguard.io.files import file_checksum, require_folder, write_atomically
from multiguard.io.records import checksum, convert
from multiguard.results.described import StoredConfig
from multiguard.results.fileset import place, replace_together
from multiguard.results.sealed import Description
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

ATTACK_NAME, ATTACK_ROWS_NAME = "attack.json", "attack.parquet"
_NAMES = (ATTACK_ROWS_NAME, ATTACK_NAME)
_DESCRIPTION = Description(ATTACK_NAME, "multiguard-attack", 1, "an attack folder", "attack again")
_SAID = (
    *("sigma", "label_names", "labelled", "methods", "radii", "names", "beta", "draws"),
    *("without_labels", "failed", "adaptive", "flat", "plan"),
)


@dataclass(frozen=True, eq=False)
class AttackFolder:
    """An attack folder as it was written, its hashes found right.

    Attributes:
        attacks: What attacks reached.
        certificates_hash: The sha256 of the description of the certificates that were attacked.
        provenance: Where the certificates' votes come from, as they say themselves.
        command: What made the folder, where it was told.
    """

    attacks: Attacks
    certificates_hash: str
    provenance: Mapping[str, Any]
    command: str | None


def write_attacks(
    folder: str | Path,
    attacks: Attacks,
    *,
    certificates_hash: str,
    provenance: Mapping[str, Any],
    command: str | None = None,
    force: bool = False,
) -> None:
    """Write an attack folder so that a reader finds the old files or the new ones, never a mix.

    Args:
        folder: Where to write; made if it is not there.
        attacks: What attacks reached.
        certificates_hash: The sha256 of the description of the certificates.
        provenance: Where the certificates' votes come from.
        command: The command line that made the folder.
        force: Whether to replace an attack that is there.
    """
    target = Path(folder)
    if not force and any(place(target, name).exists() for name in _NAMES):
        raise InvalidInputError(f"{target} holds an attack already; --force (force=True) replaces it, or name another")
    require_folder(target)
    said = {
        "rule": attacks.config.rule.name,
        "setting": attacks.config.record,
        **{name: getattr(attacks, name) for name in _SAID},
        "certificates_sha256": certificates_hash,
        "provenance": dict(provenance),
        "command": command,
        "attacked_with": __version__,
    }

    def write(part: Path) -> None:
        _write_rows(part / ATTACK_ROWS_NAME, attacks)
        _save(part / ATTACK_NAME, {**said, "files": {ATTACK_ROWS_NAME: file_checksum(part / ATTACK_ROWS_NAME)}})

    replace_together(target, _NAMES, write)


def read_attacks(folder: str | Path) -> AttackFolder:
    """An attack folder after the hash of every file has been found right; else `DataError` naming the file."""
    target = Path(folder)
    said = _described(_DESCRIPTION.load(target), target / ATTACK_NAME)
    path = place(target, ATTACK_ROWS_NAME)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); attack again") from error
    if hashlib.sha256(content).hexdigest() != said.files.get(ATTACK_ROWS_NAME):
        raise DataError(f"{path} was altered after it was written, or is damaged; attack again")
    config = said.config()
    attacks = Attacks(
        config=config,
        methods=check_methods(said.methods, config.rule),  # type: ignore[arg-type]
        images=_parse_rows(content, path, said.label_names, goals(config.rule)),
        **{name: getattr(said, name) for name in _SAID if name != "methods"},
    )
    return AttackFolder(attacks, said.certificates_sha256, said.provenance, said.command)


@dataclass(frozen=True)
class _Stored:
    """The description as it lies in the file."""

    format: str
    version: int
    sha256: str
    rule: Literal["top-k", "threshold"]
    setting: Mapping[str, Any]
    sigma: float
    label_names: tuple[str, ...]
    labelled: bool
    methods: tuple[str, ...]
    radii: tuple[float, ...]
    names: tuple[str, ...]
    beta: float
    draws: int
    without_labels: int
    failed: int
    adaptive: bool
    flat: int
    plan: Mapping[str, Any]
    certificates_sha256: str
    provenance: Mapping[str, Any]
    command: str | None
    attacked_with: str
    files: Mapping[str, str]

    def config(self) -> CertifyConfig:
        """The config, of its rule."""
        return convert(self.setting, StoredConfig).config(self.rule)


def _described(stored: Mapping[str, Any], path: Path) -> _Stored:
    """What a description says, every value of its kind; else `DataError` naming the file."""
    try:
        said = convert(stored, _Stored)
        said.config()
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}; attack again") from error
    return said


def _save(path: Path, said: Mapping[str, Any]) -> None:
    described = json.loads(
        json.dumps({"format": _DESCRIPTION.format, "version": _DESCRIPTION.version, **said}, allow_nan=False)
    )
    text = json.dumps({**described, "sha256": checksum(described)}, indent=1)
    write_atomically(path, lambda file: file.write(text.encode()))


def _schema() -> pa.Schema:
    import pyarrow as pa

    word, real, whole = pa.string(), pa.float64(), pa.int64()
    proved = pa.struct([("goal", word), ("method", word), ("radii", pa.list_(real))])
    reached = pa.struct(
        [("attack", word), ("goal", word), ("radius", real), ("norm", real), ("size", whole), ("at_most", whole)]
    )
    return pa.schema(
        [("id", word), ("labels", pa.list_(word)), ("proved", pa.list_(proved)), ("reached", pa.list_(reached))]
    )


def _write_rows(path: Path, attacks: Attacks) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(image, attacks.label_names) for image in attacks.images]
    table = pa.Table.from_pylist(rows, schema=_schema())
    write_atomically(path, lambda file: pq.write_table(table, file, compression="zstd"))


def _row(image: AttackedImage, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id": image.id,
        "labels": [names[label] for label in image.labels],
        "proved": [
            {"goal": goal, "method": method, "radii": radii.tolist()}
            for goal, by_method in image.proved.items()
            for method, radii in by_method.items()
        ],
        "reached": [asdict(found) for found in image.reached],
    }


def _parse_rows(
    content: bytes, path: Path, names: tuple[str, ...], wanted: tuple[Goal, ...]
) -> tuple[AttackedImage, ...]:
    from multiguard.io.files import open_parquet

    index = {name: label for label, name in enumerate(names)}
    try:
        rows = open_parquet(content).read().cast(_schema()).to_pylist()
        return tuple(_image(row, index, wanted) for row in rows)
    except Exception as error:  # a damaged file makes its reader fail in any way there is
        raise DataError(f"{path} is damaged or not of this attack: {error}") from error


def _image(row: Mapping[str, Any], index: Mapping[str, int], wanted: tuple[Goal, ...]) -> AttackedImage:
    proved = {
        goal: {each["method"]: np.array(each["radii"], np.float64) for each in row["proved"] if each["goal"] == goal}
        for goal in wanted
    }
    labels = tuple(index[name] for name in row["labels"])
    return AttackedImage(row["id"], labels, proved, tuple(Reached(**found) for found in row["reached"]))
