"""attack.parquet: what attacks achieved on every image, beside what was proved of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify.noise import parse_noise
from multiguard.evaluate.attack_outcomes import AttackedImage, AttackOutcome, Attacks, Goal, goals
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.methods import check_methods
from multiguard.evaluate.parquet_tables import TableKind
from multiguard.io.config import from_tree, to_tree
from multiguard.io.records import convert
from multiguard.io.short_repr import short_repr
from multiguard.io.writer import staged
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ATTACK_NAME = "attack.parquet"
_FOLLOWERS = tuple(f"attack.{kind}" for kind in ("csv", "md", "tex", "png", "svg", "pdf"))  # its table and figure
_KIND = TableKind(ATTACK_NAME, "multiguard-attack", 4, "an attack folder", "attack again")


@dataclass(frozen=True, eq=False)
class AttackFolder:
    """An attack folder as it was written, its checksums verified; see `read_attacks`."""

    attacks: Attacks
    certificates_hash: str  # the sha256 of the certificates.parquet that was attacked
    provenance: Mapping[str, Any]  # of the votes
    command: str | None  # the command that made the folder; None where it is not known

    __repr__ = short_repr


@dataclass(frozen=True)
class _Metadata:
    """The metadata in the file."""

    config: dict[str, Any]
    noise: str
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
    plan: dict[str, Any]
    certificates_sha256: str
    provenance: dict[str, Any]
    command: str | None
    attacked_with: str


def stage_attacks(
    stage: Path,
    attacks: Attacks,
    *,
    certificates_hash: str,
    provenance: Mapping[str, Any],
    command: str | None = None,
) -> None:
    """Write attack.parquet to a folder that `attack_stage` has made.

    Args:
        stage: The folder.
        attacks: What attacks achieved.
        certificates_hash: The sha256 of the certificates.parquet that was attacked.
        provenance: The provenance of the votes.
        command: The command that made the folder.
    """
    import pyarrow as pa

    metadata = _Metadata(
        to_tree(attacks.config),
        str(attacks.noise),
        attacks.label_names,
        attacks.labelled,
        attacks.methods,
        attacks.radii,
        attacks.names,
        attacks.beta,
        attacks.draws,
        attacks.without_labels,
        attacks.failed,
        attacks.adaptive,
        attacks.flat,
        dict(attacks.plan),
        certificates_hash,
        dict(provenance),
        command,
        __version__,
    )
    table = pa.table(_columns(attacks), schema=_schema())
    _KIND.write(stage / ATTACK_NAME, table.schema, [table], vars(metadata))


def attack_stage(
    folder: Path, request: Mapping[str, Any] | None = None, *, force: bool = False
) -> AbstractContextManager[Path | None]:
    """A private folder for the files of an attack folder; see `staged`."""
    return staged(folder / ATTACK_NAME, request, kind="an attack", names=_FOLLOWERS, force=force)


def read_attacks(folder: str | Path) -> AttackFolder:
    """An attack folder as it was written; a damaged or edited one raises `DataError` naming the file.

    >>> from multiguard import CertifyConfig
    >>> from multiguard.certify.noise import Gaussian
    >>> clean = AttackOutcome("none", "in", 0.0, 0.0, 1, 1)
    >>> image = AttackedImage("000042", (1,), {"in": {"joint": np.array([0.6])}}, (clean,))
    >>> config, names = CertifyConfig(2, 1, draws=100), ("cat", "dog")
    >>> attacks = Attacks(config, Gaussian(0.5), names, True, ("joint",), (0.0,), ("pgd",), 0.001, 200, (image,), 0)
    >>> with attack_stage(out) as stage:
    ...     stage_attacks(stage, attacks, certificates_hash="0" * 64, provenance={})
    >>> read_attacks(out).attacks.images[0].outcomes
    (AttackOutcome(attack='none', goal='in', radius=0.0, norm=0.0, size=1, at_most=1),)
    """
    return _KIND.read(Path(folder), lambda stored, file, _: _parse(stored, file))


def _parse(stored: dict[str, Any], file: pq.ParquetFile) -> AttackFolder:
    found = convert(stored, _Metadata)
    config, noise = from_tree(CertifyConfig, found.config), parse_noise(found.noise)
    config.rule.check(len(found.label_names))
    index = {name: label for label, name in enumerate(found.label_names)}
    rows = file.read().cast(_schema()).to_pylist()
    attacks = Attacks(
        config,
        noise,
        found.label_names,
        found.labelled,
        check_methods(found.methods, config.rule, noise),
        found.radii,
        found.names,
        found.beta,
        found.draws,
        tuple(_image(row, index, goals(config.rule)) for row in rows),
        found.without_labels,
        found.failed,
        found.adaptive,
        found.flat,
        found.plan,
    )
    return AttackFolder(attacks, found.certificates_sha256, found.provenance, found.command)


def _image(row: Mapping[str, Any], index: Mapping[str, int], rule_goals: tuple[Goal, ...]) -> AttackedImage:
    proved = {
        goal: {each["method"]: np.array(each["radii"], np.float64) for each in row["proved"] if each["goal"] == goal}
        for goal in rule_goals
    }
    labels = tuple(index[name] for name in row["labels"])
    return AttackedImage(row["id"], labels, proved, tuple(AttackOutcome(**each) for each in row["outcomes"]))


def _columns(attacks: Attacks) -> dict[str, list[Any]]:
    names, images = attacks.label_names, attacks.images
    return {
        "id": [image.id for image in images],
        "labels": [[names[label] for label in image.labels] for image in images],
        "proved": [_proved_rows(image) for image in images],
        "outcomes": [[asdict(outcome) for outcome in image.outcomes] for image in images],
    }


def _proved_rows(image: AttackedImage) -> list[dict[str, Any]]:
    pairs = [(goal, *pair) for goal, by_method in image.proved.items() for pair in by_method.items()]
    return [{"goal": goal, "method": method, "radii": radii.tolist()} for goal, method, radii in pairs]


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, real, integer = pa.string(), pa.float64(), pa.int64()
    proved = pa.struct([("goal", text), ("method", text), ("radii", pa.list_(real))])
    reals, integers = [("radius", real), ("norm", real)], [("size", integer), ("at_most", integer)]
    outcome = pa.struct([("attack", text), ("goal", text), *reals, *integers])
    columns = [("id", text), ("labels", pa.list_(text)), ("proved", pa.list_(proved)), ("outcomes", pa.list_(outcome))]
    return pa.schema(columns)
