"""The manifest of a votes folder: where the votes come from, and which shards are whole."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from multiguard.errors import VotesError
from multiguard.files import write_atomically
from multiguard.votes.provenance import Provenance

MANIFEST_NAME = "manifest.json"
_FORMAT = "multiguard-votes"
_VERSION = 2


@dataclass(frozen=True)
class Shard:
    """A whole shard: its file name, the sha256 of the file and its number of rows."""

    file: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What a votes folder holds.

    Attributes:
        provenance: Where the votes come from.
        shard_images: How many images a shard holds; the last one may hold fewer.
        shards: The whole shards, by the position of the shard in the run.
    """

    provenance: Provenance
    shard_images: int
    shards: Mapping[int, Shard]

    @property
    def shard_count(self) -> int:
        """How many shards the finished run has."""
        return -(-len(self.provenance.image_ids) // self.shard_images)

    @property
    def complete(self) -> bool:
        """Whether every shard is there."""
        return set(self.shards) == set(range(self.shard_count))

    def positions(self, shard: int) -> range:
        """The positions in `image_ids` of the images of a shard."""
        start = shard * self.shard_images
        return range(start, min(start + self.shard_images, len(self.provenance.image_ids)))


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest in place in one step: a reader sees the old one or the new one."""
    described = json.loads(json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(manifest)}))
    text = json.dumps({**described, "sha256": own_hash(described)}, indent=1)
    write_atomically(folder / MANIFEST_NAME, lambda file: file.write(text.encode()))


def own_hash(described: Mapping[str, Any]) -> str:
    """The sha256 of all that a manifest says but for this, so that an edited one is known."""
    rest = {name: value for name, value in described.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a votes folder, or a `VotesError` that says what is wrong with it."""
    path = folder / MANIFEST_NAME
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise VotesError(f"{folder} is not a votes folder: it has no {MANIFEST_NAME}.") from error
    except (OSError, ValueError) as error:
        raise VotesError(f"{path} cannot be read: {error}.") from error
    try:
        _check_format(stored, path)
        return _from_json(stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VotesError(f"{path} is damaged: {type(error).__name__}: {error}.") from error


def _check_format(stored: Mapping[str, Any], path: Path) -> None:
    found = (stored["format"], stored["version"])
    if found != (_FORMAT, _VERSION):
        raise VotesError(
            f"{path} has format {found[0]!r}, version {found[1]!r}; "
            f"this multiguard reads {_FORMAT!r}, version {_VERSION}. Read it with the version that wrote it."
        )
    if stored["sha256"] != own_hash(stored):
        raise VotesError(f"{path} was altered after it was written; vote again, or bring the file back as it was.")


def _from_json(stored: Mapping[str, Any]) -> Manifest:
    provenance = {name: _frozen(value) for name, value in stored["provenance"].items()}
    shards = {int(index): Shard(**shard) for index, shard in stored["shards"].items()}
    return Manifest(Provenance(**provenance), int(stored["shard_images"]), shards)


def _frozen(value: Any) -> Any:
    """The value as it was before JSON made its tuples lists."""
    if isinstance(value, dict):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value
