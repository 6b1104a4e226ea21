"""A votes folder as it is read: only where every hash agrees and every shard holds the images of its place."""

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from multiguard.errors import VotesError
from multiguard.io.files import file_checksum, files_checksum
from multiguard.votes.entry import entry_paths, read_entry, shard_name
from multiguard.votes.manifest import MANIFEST_NAME, Manifest, Shard, load_manifest
from multiguard.votes.reading import ReadShard, Votes
from multiguard.votes.shards import Head, read_heads, read_run, unaltered


def read_votes(folder: str | Path, *, partial: bool = False) -> Votes:
    """The votes of a finished run, after the hash and the images of every shard have been found right.

    Args:
        folder: What `VotesWriter` wrote.
        partial: Whether to accept a run that has not finished, and to read the shards that are whole.
    """
    place = Path(folder)
    manifest = load_manifest(place)
    entries = [] if manifest.sealed else sorted(entry_paths(place))
    if not manifest.sealed:
        manifest = manifest.with_shards(dict(read_entry(path, manifest) for path in entries))
    if not (manifest.sealed and manifest.complete) and not partial:
        raise VotesError(
            f"{place} holds {len(manifest.shards)} of {manifest.shard_count} shards: its run has not ended. "
            "Run it again to go on, or pass partial=True to read what is whole."
        )
    shards = [
        ReadShard(place / shard.file, shard.sha256, checked_heads(place, manifest, index))
        for index, shard in manifest.shards.items()
    ]
    digest = files_checksum([place / MANIFEST_NAME, *entries]) if entries else file_checksum(place / MANIFEST_NAME)
    return Votes(manifest.provenance, digest, shards, manifest.failures)


def checked_heads(folder: Path, manifest: Manifest, index: int) -> list[Head]:
    """The images of a shard, whose file is as it was written and holds the images that belong there."""
    shard = manifest.shards[index]
    path = folder / shard.file
    if not 0 <= index < manifest.shard_count:
        raise VotesError(f"{folder / MANIFEST_NAME} names shard {index} of a run of {manifest.shard_count} shards.")
    heads, run = _read_heads(path, _content(folder, shard, index), manifest)
    belong, failed = manifest.ids(index), [failure.image_id for failure in shard.failures]
    if len(heads) != shard.rows or not make_up(belong, [head.image_id for head in heads], failed):
        raise VotesError(
            f"{path} does not hold the {len(belong)} images of shard {index} in their order: the manifest was altered. "
            "Run the sampling again to make the shard anew."
        )
    if run != manifest.run_hash:
        raise VotesError(f"{path} comes from another run than the manifest beside it; bring back the right one.")
    return heads


def make_up(belong: Sequence[str], rows: Sequence[str], failed: Sequence[str]) -> bool:
    """Whether the rows and the failures are together exactly the images that belong there, each in their order."""
    without = set(failed)
    voted = [image for image in belong if image not in without]
    return list(rows) == voted and list(failed) == [image for image in belong if image in without]


def _content(folder: Path, shard: Shard, index: int) -> bytes:
    """The file of a shard, which lies in its place and is as it was written."""
    path = folder / shard.file
    if shard.file != shard_name(index):
        raise VotesError(
            f"{folder / MANIFEST_NAME} names {shard.file!r} as shard {index}, which lies in {shard_name(index)}."
        )
    if not path.is_file():
        raise VotesError(f"{path} is missing; run the sampling again to make it anew.")
    return unaltered(path, shard.sha256)


def _read_heads(path: Path, content: bytes, manifest: Manifest) -> tuple[list[Head], str | None]:
    """The images of a shard, and the run that it was written for."""
    try:
        return read_heads(path, content, manifest.provenance), read_run(content)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        said = re.sub(r"\s+", " ", str(error))
        raise VotesError(f"{path} is no shard of votes: {said}") from error
