"""The manifest of a votes folder: where the votes come from and, once the run has ended, all of its shards."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from multiguard.errors import VotesError
from multiguard.io.records import checksum, convert
from multiguard.votes.provenance import Provenance
from multiguard.votes.seal import read_sealed, write_sealed

MANIFEST_NAME = "manifest.json"
_FORMAT = "multiguard-votes"
_MEND = "Bring it back as it was, or vote with --force, which begins anew."


@dataclass(frozen=True)
class ImageFailure:
    """An image that could not be voted on, and why, in one line; it has no votes and no certificate."""

    image_id: str
    reason: str


@dataclass(frozen=True)
class Shard:
    """A whole shard: its file name, the sha256 of the file, its number of rows and the images that have none."""

    file: str
    sha256: str
    rows: int
    failures: tuple[ImageFailure, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What a votes folder holds.

    Attributes:
        provenance: Where the votes come from.
        shard_images: How many images a shard holds; the last one may hold fewer.
        shards: The whole shards that are known, by the position of the shard in the run.
        sealed: Whether the run has ended: the manifest on disk then names every shard.
    """

    provenance: Provenance
    shard_images: int
    shards: Mapping[int, Shard]
    sealed: bool = False

    @property
    def shard_count(self) -> int:
        """How many shards the finished run has."""
        return -(-len(self.provenance.image_ids) // self.shard_images)

    @property
    def complete(self) -> bool:
        """Whether every shard is there."""
        return set(self.shards) == set(range(self.shard_count))

    @property
    def failures(self) -> tuple[ImageFailure, ...]:
        """The images of the known shards that could not be voted on, in order."""
        return tuple(failure for shard in self.shards.values() for failure in shard.failures)

    @property
    def run_hash(self) -> str:
        """What tells this run from every other: a sha256 of the provenance and the number of images in a shard."""
        return checksum({"provenance": self.provenance.digest, "shard_images": self.shard_images})

    def positions(self, shard: int) -> range:
        """The positions in `image_ids` of the images of a shard."""
        start = shard * self.shard_images
        return range(start, min(start + self.shard_images, len(self.provenance.image_ids)))

    def ids(self, shard: int) -> list[str]:
        """The ids of the images of a shard."""
        return [self.provenance.image_ids[position] for position in self.positions(shard)]

    def with_shards(self, shards: Mapping[int, Shard]) -> "Manifest":
        """The manifest of the same run that knows these shards, in order, and is not sealed."""
        return replace(self, shards=dict(sorted(shards.items())), sealed=False)


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest in place in one step; one that is not sealed names no shard, for their entries lie beside it."""
    said = {
        "shard_images": manifest.shard_images,
        "provenance": asdict(manifest.provenance),
        "shards": {index: asdict(shard) for index, shard in manifest.shards.items()} if manifest.sealed else None,
    }
    write_sealed(folder / MANIFEST_NAME, _FORMAT, said)


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a votes folder, or a `VotesError` that says what is wrong with it; no shard is looked at."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        raise VotesError(f"{folder} is not a votes folder: it has no {MANIFEST_NAME}.")
    stored = read_sealed(path, _FORMAT, _MEND)
    try:
        return _from_json(stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VotesError(f"{path} is damaged: {type(error).__name__}: {error}. {_MEND}") from error


def _from_json(stored: Mapping[str, Any]) -> Manifest:
    run = convert(stored["provenance"], Provenance)
    sealed, images = stored["shards"] is not None, stored["shard_images"]
    shards = {int(index): shard_from_json(shard) for index, shard in (stored["shards"] or {}).items()}
    if not isinstance(images, int) or images < 1:
        raise ValueError(f"{images!r} images in a shard")
    _check_numbers(run)
    return Manifest(run, images, shards, sealed)


def _check_numbers(run: Provenance) -> None:
    """Raises `ValueError` unless votes can have been cast with these numbers: a claim would be made of them."""
    labels = len(run.label_names)
    if not (run.sigma > 0 and run.draws >= 1 and labels >= 1):
        raise ValueError(f"sigma {run.sigma}, {run.draws} draws and {labels} labels")
    if run.k_max is not None and run.k_max < 1:
        raise ValueError(f"k_max {run.k_max}")
    if len(set(run.image_ids)) < len(run.image_ids):
        raise ValueError("an image stands there twice")


def shard_from_json(stored: Mapping[str, Any]) -> Shard:
    """The shard that an entry describes; anything else raises `ValueError`."""
    return convert(stored, Shard)
