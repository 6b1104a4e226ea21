"""A votes folder: written shard by shard, resumable, and read only where its hashes agree."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from multiguard.errors import InvalidInputError, VotesError
from multiguard.files import file_hash
from multiguard.votes.manifest import MANIFEST_NAME, Manifest, load_manifest, save_manifest
from multiguard.votes.provenance import Provenance
from multiguard.votes.reading import Votes
from multiguard.votes.row import VoteRow
from multiguard.votes.shards import Head, read_heads, write_shard


class VotesWriter:
    """Writes a votes folder so that what the manifest names is always whole.

    A folder that holds a run of the same provenance is taken up where it stopped; another run's is refused, unless it
    failed before its first shard was whole.

    Args:
        folder: Where to write; made if it is not there.
        provenance: All that determines the votes.
        shard_images: How many images go into one file.
    """

    def __init__(self, folder: str | Path, provenance: Provenance, *, shard_images: int = 64) -> None:
        if shard_images < 1:
            raise InvalidInputError(f"shard_images must be at least 1, not {shard_images}.")
        if len(set(provenance.image_ids)) < len(provenance.image_ids):
            raise InvalidInputError("image ids must be different: two images of one id would share their noise.")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.manifest = _taken_up(self._folder, Manifest(provenance, shard_images, {}))
        save_manifest(self._folder, self.manifest)

    def missing(self) -> list[int]:
        """The shards still to be written, in order."""
        return [index for index in range(self.manifest.shard_count) if index not in self.manifest.shards]

    def write(self, index: int, rows: Sequence[VoteRow]) -> None:
        """Write one shard whole, then name it in the manifest."""
        provenance = self.manifest.provenance
        wanted = [provenance.image_ids[position] for position in self.manifest.positions(index)]
        if [row.image_id for row in rows] != wanted:
            raise InvalidInputError(f"shard {index} must hold the images {wanted}, in this order.")
        shard = write_shard(self._folder / f"votes-{index:05d}.parquet", rows, provenance)
        self.manifest = replace(self.manifest, shards={**self.manifest.shards, index: shard})
        save_manifest(self._folder, self.manifest)


def read_votes(folder: str | Path, *, partial: bool = False) -> Votes:
    """The votes of a finished run, after the hash and the images of every shard have been found right.

    Args:
        folder: What `VotesWriter` wrote.
        partial: Whether to accept a run that has not finished, and to read the shards that are whole.
    """
    place = Path(folder)
    manifest = load_manifest(place)
    if not manifest.complete and not partial:
        raise VotesError(
            f"{place} holds {len(manifest.shards)} of {manifest.shard_count} shards: its run has not ended. "
            "Run it again to go on, or pass partial=True to read what is whole."
        )
    heads = {index: _checked_heads(place, manifest, index) for index in sorted(manifest.shards)}
    shards = [(place / manifest.shards[index].file, heads[index]) for index in heads]
    return Votes(manifest.provenance, file_hash(place / MANIFEST_NAME), shards)


def _taken_up(folder: Path, fresh: Manifest) -> Manifest:
    """The manifest to go on from: of what the folder names, the shards that are still whole."""
    if not (folder / MANIFEST_NAME).exists():
        return fresh
    stored = load_manifest(folder)
    differences = stored.provenance.differences(fresh.provenance)
    if stored.shard_images != fresh.shard_images:
        differences.append("shard_images")
    if differences and not stored.shards:
        return fresh
    if differences:
        raise VotesError(
            f"{folder} holds the votes of another run: {_differ(differences)}. "
            "Vote with --force to throw them away, or choose another folder."
        )
    return replace(stored, shards={i: s for i, s in stored.shards.items() if _whole(folder, stored, i)})


_IN_WORDS = {"first_picture_hash": "the first picture (size or content)"}


def _differ(names: Sequence[str]) -> str:
    """The names as the subject of a sentence: sigma differs; sigma, k_max and seed differ."""
    *others, last = [_IN_WORDS.get(name, name) for name in names]
    return f"{', '.join(others)} and {last} differ" if others else f"{last} differs"


def _whole(folder: Path, manifest: Manifest, index: int) -> bool:
    try:
        _checked_heads(folder, manifest, index)
    except VotesError:
        return False
    return True


def _checked_heads(folder: Path, manifest: Manifest, index: int) -> list[Head]:
    """The images of a shard, whose file is as it was written and holds the images that belong there."""
    _check_file(folder, manifest, index)
    path = folder / manifest.shards[index].file
    heads = read_heads(path, manifest.provenance)
    belong = [manifest.provenance.image_ids[position] for position in manifest.positions(index)]
    if [head.image_id for head in heads] != belong:
        raise VotesError(
            f"{path} does not hold the {len(belong)} images of shard {index} in their order: the manifest was altered. "
            "Run the sampling again to make the shard anew."
        )
    return heads


def _check_file(folder: Path, manifest: Manifest, index: int) -> None:
    shard = manifest.shards[index]
    path = folder / shard.file
    if Path(shard.file).name != shard.file:
        raise VotesError(f"{folder / MANIFEST_NAME} names {shard.file!r}, which does not lie in its folder.")
    if not path.is_file():
        raise VotesError(f"{path} is missing; run the sampling again to make it anew.")
    if file_hash(path) != shard.sha256:
        raise VotesError(
            f"{path} is damaged: its sha256 is not the manifest's. Run the sampling again to make it anew."
        )
    if shard.rows != len(manifest.positions(index)):
        raise VotesError(f"{path} holds {shard.rows} images where {len(manifest.positions(index))} belong.")
