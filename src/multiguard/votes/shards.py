"""The manifest and the shards of a votes folder, read only where every checksum agrees.

The protocol: the manifest is written when the run begins and holds all that determines the votes. Each shard, a Parquet
file, is written atomically by whichever process voted on its images. Its own metadata name the run, the index, the
images that failed and a checksum of the rows, so no second file can be missing or disagree. When all shards are there,
the main process replaces the manifest by one that also holds the checksum and the failures of every shard. So a run
that is killed at any moment leaves a manifest and complete shards, and a finished run opens from one file of metadata.
A shard without a manifest counts for nothing: its images may have changed since.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.io.files import open_parquet, write_atomically
from multiguard.io.records import checksum, convert, decode_checked, encode_checked
from multiguard.votes.provenance import Provenance
from multiguard.votes.types import VoteRow, check_head, check_row, decode_votes, encode_votes

MANIFEST_NAME = "manifest.json"
_MANIFEST: dict[str, Any] = {"format": "multiguard-votes", "version": 4}
_SHARD: dict[str, Any] = {"format": "multiguard-votes-shard", "version": 4}
_METADATA = b"multiguard"  # the key in the metadata of a shard
_SHARD_NAME = re.compile(r"votes-\d{5,}\.parquet")
_REMAKE = "Vote again with the same command, which makes the shard again."
_HEAD = ["image_id", "labels", "draws", "image_sha256"]
_SCHEMA = pa.schema(
    [
        ("image_id", pa.string()),
        ("labels", pa.list_(pa.uint16())),
        ("draws", pa.int64()),
        ("votes", pa.binary()),
        ("pilot", pa.binary()),
        ("image_sha256", pa.string()),
    ]
)


@dataclass(frozen=True)
class Shard:
    """A complete shard: the sha256 of its file, and its images that have no votes."""

    sha256: str
    failures: tuple[ImageFailure, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The manifest of a votes folder.

    Attributes:
        provenance: All that determines the votes.
        shard_images: The number of images per shard; the last shard may hold fewer.
        shards: All shards, in order; None until the run has finished.

    Example:
        >>> manifest = Manifest(run, shard_images=2)  # `run` is a Provenance of 5 images
        >>> manifest.shard_count, manifest.positions(2), manifest.finished
        (3, range(4, 5), False)
    """

    provenance: Provenance
    shard_images: int
    shards: tuple[Shard, ...] | None = None

    def __post_init__(self) -> None:
        run = self.provenance
        if self.shard_images < 1:
            raise InvalidInputError(f"shard_images must be at least 1, not {self.shard_images}.")
        if len(set(run.image_ids)) < len(run.image_ids):
            raise InvalidInputError("image ids must be distinct: two images of one id would share their noise.")
        if not (run.sigma > 0 and run.draws >= 1 and run.label_names and (run.k_max is None or run.k_max >= 1)):
            raise InvalidInputError(
                f"sigma must be positive, and draws, labels and k_max at least 1; not sigma {run.sigma}, {run.draws} "
                f"draws, {len(run.label_names)} labels and k_max {run.k_max}."
            )
        if self.shards is not None and len(self.shards) != self.shard_count:
            raise InvalidInputError(f"{len(self.shards)} shards, expected {self.shard_count}.")

    @property
    def finished(self) -> bool:
        """Whether the run has finished."""
        return self.shards is not None

    @property
    def shard_count(self) -> int:
        """The number of shards of the finished run."""
        return -(-len(self.provenance.image_ids) // self.shard_images)

    @property
    def failures(self) -> tuple[ImageFailure, ...]:
        """The images of a finished run that could not be voted on, in order."""
        return tuple(failure for shard in self.shards or () for failure in shard.failures)

    @cached_property
    def run_hash(self) -> str:
        """The checksum that distinguishes this run from every other."""
        return checksum({"provenance": self.provenance, "shard_images": self.shard_images})

    def positions(self, shard: int) -> range:
        """Return the positions in `image_ids` of the images of a shard."""
        start = shard * self.shard_images
        return range(start, min(start + self.shard_images, len(self.provenance.image_ids)))

    def ids(self, shard: int) -> list[str]:
        """Return the ids of the images of a shard."""
        return [self.provenance.image_ids[position] for position in self.positions(shard)]

    def consists_of(self, shard: int, voted: Sequence[str], failures: Sequence[ImageFailure]) -> bool:
        """Whether the images with votes and those that failed, each in order, are exactly the images of a shard."""
        failed = [failure.image_id for failure in failures]
        expected = [image for image in self.ids(shard) if image not in failed]
        return list(voted) == expected and failed == [image for image in self.ids(shard) if image in failed]


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    content = encode_checked(manifest, **_MANIFEST)
    write_atomically(folder / MANIFEST_NAME, lambda file: file.write(content))


def load_manifest(folder: Path) -> Manifest:
    """Return the manifest of a votes folder, its shards unread; raises `VotesError` if it is missing or damaged."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        raise VotesError(f"{folder} is not a votes folder: it has no {MANIFEST_NAME}.")
    try:
        return convert(decode_checked(path.read_bytes(), **_MANIFEST), Manifest)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}. Restore it, or vote with --force, which starts again."
        raise VotesError(message) from error


def shard_name(index: int) -> str:
    """Return the file name of a shard."""
    return f"votes-{index:05d}.parquet"


def is_shard_file(name: str) -> bool:
    """Whether a file is named like a shard."""
    return _SHARD_NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class _Metadata:
    """The metadata of a shard: its run, its index, its images without votes and the checksum of its rows."""

    run: str
    index: int
    failures: tuple[ImageFailure, ...]
    rows_sha256: str


def encode_shard(run: Manifest, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure]) -> bytes:
    """Return the content of a shard; rows that do not fit the run, or other images, raise `InvalidInputError`."""
    if not run.consists_of(index, [row.image_id for row in rows], failures):
        raise InvalidInputError(f"shard {index} must hold the images {run.ids(index)}, in this order, each once.")
    records = [_record(row, run.provenance) for row in rows]
    metadata = encode_checked(_Metadata(run.run_hash, index, tuple(failures), _rows_checksum(records)), **_SHARD)
    table = pa.Table.from_pylist(records, schema=_SCHEMA.with_metadata({_METADATA: metadata}))
    file = io.BytesIO()
    # Votes hardly shrink at a higher level. A dictionary of distinct rows only costs, and so do statistics, which would
    # repeat short votes uncompressed.
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    pq.write_table(table, file, row_group_size=1, write_statistics=False, **options)
    return file.getvalue()


def _record(row: VoteRow, provenance: Provenance) -> dict[str, Any]:
    try:
        check_row(row, provenance)
    except InvalidInputError as error:
        raise InvalidInputError(f"image {row.image_id!r} cannot be stored: it has {error}") from error
    return {
        "image_id": row.image_id,
        "labels": [int(label) for label in row.labels],
        "draws": row.draws,
        "votes": encode_votes(row.votes),
        "pilot": None if row.pilot is None else encode_votes(row.pilot),
        "image_sha256": row.image_hash,
    }


def _rows_checksum(records: Iterable[Mapping[str, Any]]) -> str:
    """The sha256 of all values of all rows."""
    digest = hashlib.sha256()
    for record in records:
        votes, pilot = record["votes"], record["pilot"]
        lengths = [None if data is None else len(data) for data in (votes, pilot)]
        digest.update(json.dumps([[record[name] for name in _HEAD], lengths]).encode())
        digest.update((votes or b"") + (pilot or b""))
    return digest.hexdigest()


@dataclass(frozen=True)
class Head:
    """What is known of an image without reading its votes."""

    image_id: str
    labels: tuple[int, ...]
    draws: int
    image_hash: str | None


@dataclass(frozen=True)
class ReadShard:
    """A shard that has passed every check: its path, its checksum and failures, and its images."""

    path: Path
    shard: Shard
    heads: Sequence[Head]


def read_shard(folder: Path, run: Manifest, index: int) -> ReadShard:
    """Return a shard whose checksum, run, index and images are the right ones; raises `VotesError` otherwise.

    The manifest of a finished run knows the checksum of the file. Before, all rows are compared with the checksum in
    the shard itself.
    """
    path = folder / shard_name(index)
    known = run.shards[index] if run.shards is not None else None
    content = read_content(path, known.sha256 if known is not None else None)
    try:
        metadata, heads = _decode_shard(content, run.provenance, verify_rows=known is None)
    except (VotesError, pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise VotesError(f"{path} is damaged: {' '.join(str(error).split())}. {_REMAKE}") from error
    if metadata.run != run.run_hash:
        raise VotesError(f"{path} comes from another run than the manifest beside it; restore the right one.")
    same_failures = known is None or known.failures == metadata.failures
    voted = [head.image_id for head in heads]
    if not (metadata.index == index and same_failures and run.consists_of(index, voted, metadata.failures)):
        raise VotesError(f"{path} does not hold the {len(run.ids(index))} images of shard {index}. {_REMAKE}")
    return ReadShard(path, Shard(hashlib.sha256(content).hexdigest(), metadata.failures), heads)


def read_content(path: Path, sha256: str | None) -> bytes:
    """Return the content of a shard; raises `VotesError` if its checksum is known and another one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise VotesError(f"{path} cannot be read: {error.strerror}. {_REMAKE}") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise VotesError(f"{path} is damaged: it has another checksum than the one in the manifest. {_REMAKE}")
    return content


def _decode_shard(content: bytes, provenance: Provenance, *, verify_rows: bool) -> tuple[_Metadata, list[Head]]:
    file = open_parquet(content)
    groups = range(file.num_row_groups)
    if not file.schema_arrow.equals(_SCHEMA) or any(file.metadata.row_group(i).num_rows > 1 for i in groups):
        raise VotesError("it has other columns, or more than one image in a row group")
    metadata = convert(decode_checked((file.schema_arrow.metadata or {}).get(_METADATA, b""), **_SHARD), _Metadata)
    records = file.read(columns=None if verify_rows else _HEAD).to_pylist()
    if verify_rows and _rows_checksum(records) != metadata.rows_sha256:
        raise VotesError("its rows have another checksum than the one in its metadata")
    heads = [_head(record) for record in records]
    for head in heads:
        try:
            check_head(head.labels, head.draws, provenance)
        except InvalidInputError as error:
            raise _misfit(head, error) from error
    return metadata, heads


def _head(record: Mapping[str, Any]) -> Head:
    """The head of a row; only the hash of the image may be missing."""
    if any(record[name] is None for name in ("image_id", "labels", "draws")) or None in record["labels"]:
        raise VotesError(f"a row lacks its id, its labels or its draws: {record['image_id']!r}")
    return Head(record["image_id"], tuple(record["labels"]), record["draws"], record["image_sha256"])


def _misfit(head: Head, error: InvalidInputError) -> VotesError:
    return VotesError(f"image {head.image_id!r} has {error} The manifest is not that of these votes.")


def read_row(file: pq.ParquetFile, row: int, head: Head, provenance: Provenance) -> VoteRow:
    """Return the votes of one image, without reading others; votes that do not fit the run raise `VotesError`.

    Args:
        file: The shard.
        row: Which image of it.
        head: What was read of this image before.
        provenance: The provenance of the run.
    """
    try:
        (record,) = file.read_row_group(row).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VotesError(f"the votes of image {head.image_id!r} cannot be read: {error}") from error
    if _head(record) != head:
        raise VotesError(f"the votes of image {head.image_id!r} are not where they were when the shard was opened.")
    try:
        votes = decode_votes(record["votes"] or b"", head.draws, provenance)
        pilot = None if record["pilot"] is None else decode_votes(record["pilot"], provenance.pilot_draws, provenance)
        result = VoteRow(head.image_id, head.labels, votes, pilot, head.image_hash)
        check_row(result, provenance)
    except InvalidInputError as error:
        raise _misfit(head, error) from error
    return result
