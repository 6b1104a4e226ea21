"""The manifest and the shards of a votes folder, read only where every checksum agrees.

The manifest is written first and holds all that determines the votes. Each shard, a Parquet file, is written
atomically; its metadata name the run, the index and the images that failed, and each of its pages has a checksum. When
all shards are there, the main process adds the checksum and the failures of each to the manifest. A shard without a
manifest counts for nothing: its images may have changed since.
"""

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.io.files import MOST_TABLE, open_parquet, read_hashed, write_atomically
from multiguard.io.names import short_repr
from multiguard.io.records import checksum, convert, decode_checked, encode_checked
from multiguard.votes.provenance import Provenance
from multiguard.votes.types import VoteRow, check_head, check_row, check_rows, consist_of, decode_votes, record_of

MANIFEST_NAME = "manifest.json"
MANIFEST: dict[str, Any] = {"format": "multiguard-votes", "version": 7}
SHARD: dict[str, Any] = {"format": "multiguard-votes-shard", "version": 7}
_METADATA = b"multiguard"  # the key in the metadata of a shard
SHARD_NAME = re.compile(r"votes-\d{5,}\.parquet")
_REMAKE = "Vote again with the same command, which makes the shard again."
HEAD = ["image_id", "labels", "draws", "image_sha256"]
TYPES = {"image_id": pa.string(), "labels": pa.list_(pa.uint16()), "draws": pa.int64()}
TYPES |= {"votes": pa.binary(), "pilot": pa.binary(), "image_sha256": pa.string(), "bare": pa.binary()}
_SCHEMA = pa.schema(TYPES)


@dataclass(frozen=True)
class Shard:
    """A complete shard: the sha256 of its file, and its images that have no votes."""

    sha256: str
    failures: tuple[ImageFailure, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The manifest of a votes folder."""

    provenance: Provenance  # all that determines the votes
    shard_images: int  # the number of images per shard; the last shard may hold fewer
    shards: tuple[Shard, ...] | None = None  # all shards, in order; None until the run has finished
    extends: Provenance | None = None  # the run whose draws it continues, until it has finished; None for a new run

    __repr__ = short_repr

    def __post_init__(self) -> None:
        run = self.provenance
        if self.shard_images < 1:
            raise InvalidInputError(f"shard_images must be at least 1, not {self.shard_images}.")
        if len(set(run.image_ids)) < len(run.image_ids):
            raise InvalidInputError("image ids must be distinct: two images of one id would share their noise.")
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
        """The positions in `image_ids` of the images of a shard."""
        start = shard * self.shard_images
        return range(start, min(start + self.shard_images, len(self.provenance.image_ids)))

    def ids(self, shard: int) -> list[str]:
        """The ids of the images of a shard."""
        return [self.provenance.image_ids[position] for position in self.positions(shard)]

    def save(self, folder: Path) -> None:
        """Write the manifest atomically."""
        content = encode_checked(self, **MANIFEST)
        write_atomically(folder / MANIFEST_NAME, lambda file: file.write(content))


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a votes folder, its shards unread; raises `VotesError` if it is missing or damaged."""
    return open_manifest(folder)[0]


def open_manifest(folder: Path) -> tuple[Manifest, str]:
    """The same with the sha256 of the bytes that it was made from; of a finished run it covers every shard."""
    path = folder / MANIFEST_NAME
    try:
        content, digest = read_hashed(path)
        return convert(decode_checked(content, **MANIFEST), Manifest), digest
    except (FileNotFoundError, NotADirectoryError) as error:
        if not folder.exists():
            raise VotesError(
                f"{folder} does not exist; name a votes folder, as `multiguard vote` writes it."
            ) from error
        raise VotesError(f"{folder} is not a votes folder: it has no {MANIFEST_NAME}.") from error
    except (OSError, ValueError) as error:
        remedy = "Restore it, or vote with --force, which starts again."
        raise VotesError(f"{path} cannot be read: {error}. {remedy}") from error


def shard_name(index: int) -> str:
    """The file name of a shard."""
    return f"votes-{index:05d}.parquet"


@dataclass(frozen=True)
class _Metadata:
    """The metadata of a shard: its run, its index and its images without votes."""

    run: str
    index: int
    failures: tuple[ImageFailure, ...]


def write_shard(
    folder: Path, run: Manifest, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure]
) -> Shard:
    """Write a shard atomically; rows that do not fit the run, or other images, raise `InvalidInputError`."""
    check_rows(rows, failures, run.ids(index), run.provenance)
    metadata = encode_checked(_Metadata(run.run_hash, index, tuple(failures)), **SHARD)
    table = pa.Table.from_pylist([*map(record_of, rows)], schema=_SCHEMA.with_metadata({_METADATA: metadata}))
    file = io.BytesIO()
    # Votes hardly shrink at a higher level. A dictionary of distinct rows only costs, and so do statistics, which would
    # repeat short votes uncompressed.
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    pq.write_table(table, file, row_group_size=1, write_statistics=False, write_page_checksum=True, **options)
    write_atomically(folder / shard_name(index), lambda target: target.write(file.getvalue()))
    return Shard(hashlib.sha256(file.getvalue()).hexdigest(), tuple(failures))


def open_shard(folder: Path, index: int, sha256: str | None) -> tuple[pq.ParquetFile, str]:
    """A shard and its checksum; raises `VotesError` if another one is expected."""
    path = folder / shard_name(index)
    try:
        content, found = read_hashed(path, MOST_TABLE)
    except OSError as error:
        raise VotesError(f"{path} cannot be read: {error.strerror}. {_REMAKE}") from error
    if sha256 not in (None, found):
        raise VotesError(f"{path} is damaged: it has another checksum than the one in the manifest. {_REMAKE}")
    try:
        return open_parquet(content), found
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_shard(folder: Path, run: Manifest, index: int) -> tuple[Shard, pa.Table]:
    """A shard whose checksum, run, index and images are the right ones, and the columns `HEAD` of each image.

    Anything else raises `VotesError`. The manifest of a finished run has the checksum of the file; before, every page
    is compared with its own.
    """
    path, known = folder / shard_name(index), None if run.shards is None else run.shards[index]
    file, sha256 = open_shard(folder, index, None if known is None else known.sha256)
    try:
        stored = decode_checked((file.schema_arrow.metadata or {}).get(_METADATA, b""), **SHARD)
        metadata, heads = convert(stored, _Metadata), _read_heads(file, run.provenance, whole=known is None)
    except (VotesError, pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if metadata.run != run.run_hash:
        raise VotesError(f"{path} comes from another run than its manifest; restore the right one.")
    same = metadata.index == index and known in (None, Shard(sha256, metadata.failures))
    if not (same and consist_of(run.ids(index), list(map(str, heads["image_id"].to_pylist())), metadata.failures)):
        raise VotesError(f"{path} does not hold the {len(run.ids(index))} images of shard {index}. {_REMAKE}")
    return Shard(sha256, metadata.failures), heads


def _damaged(path: Path, error: Exception) -> VotesError:
    return VotesError(f"{path} is damaged: {' '.join(str(error).split())}. {_REMAKE}")


def _read_heads(file: pq.ParquetFile, run: Provenance, *, whole: bool) -> pa.Table:
    """The columns `HEAD`; votes are read too if the file is to be checked as a whole."""
    groups = range(file.num_row_groups)
    single = all(file.metadata.row_group(i).num_rows == 1 for i in groups) or file.metadata.num_rows == 0
    if not (single and file.schema_arrow.equals(_SCHEMA)):
        raise VotesError("it has other columns, or not one image in each row group")
    heads = file.read(columns=None if whole else HEAD, use_threads=False).select(HEAD).replace_schema_metadata(None)
    for name, labels, draws, _ in zip(*(heads[column].to_pylist() for column in HEAD), strict=True):
        if name is None or labels is None or draws is None or None in labels:
            raise VotesError(f"a row lacks its id, its labels or its draws: {name!r}")
        try:
            check_head(labels, draws, run)
        except InvalidInputError as error:
            raise _unfit(name, error) from error
    return heads


def _unfit(image_id: str, error: InvalidInputError) -> VotesError:
    return VotesError(f"image {image_id!r} has {error} The manifest is not that of these votes.")


def read_rows(file: pq.ParquetFile, rows: Sequence[int], run: Provenance) -> list[VoteRow]:
    """The votes of these images of a shard; votes that do not fit the run raise `VotesError`."""
    try:
        records = file.read_row_groups(list(rows), use_threads=False).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VotesError(f"the votes of {len(rows)} images cannot be read: {error}") from error
    return [_row(record, run) for record in records]


def _row(record: Mapping[str, Any], run: Provenance) -> VoteRow:
    try:
        votes = decode_votes(record["votes"] or b"", record["draws"], run)
        pilot = None if record["pilot"] is None else decode_votes(record["pilot"], run.pilot_draws, run)
        bare = None if record["bare"] is None else decode_votes(record["bare"], 1, run)
        row = VoteRow(record["image_id"], tuple(record["labels"]), votes, pilot, record["image_sha256"], bare)
        check_row(row, run)
    except InvalidInputError as error:
        raise _unfit(record["image_id"], error) from error
    return row
