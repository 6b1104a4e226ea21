"""The manifest and the shards of a votes folder, read only where every checksum agrees.

The manifest is written when the run begins and holds all that determines the votes. Each shard, a Parquet file, is
written atomically by the process that voted on its images; its metadata name the run, the index, the images that failed
and a checksum of the rows. When all shards are there, the main process adds the checksum and the failures of each to
the manifest. So a run that is killed at any moment leaves a manifest and complete shards. A shard without a manifest
counts for nothing: its images may have changed since.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.io.files import (
    MOST_TABLE,
    is_regular,
    mentions,
    open_parquet,
    read_hashed,
    read_regular,
    remove_partial_files,
    write_atomically,
)
from multiguard.io.records import checksum, convert, decode_checked, encode_checked
from multiguard.io.rows import distinct
from multiguard.io.short_repr import short_repr
from multiguard.votes.provenance import Provenance
from multiguard.votes.types import VoteRow, check_head, check_row, decode_votes, encode_votes

MANIFEST_NAME = "manifest.json"
_MANIFEST: dict[str, Any] = {"format": "multiguard-votes", "version": 7}
_SHARD, _VERSION = "multiguard-votes-shard", 6
_METADATA = b"multiguard"  # the key in the metadata of a shard
_SHARD_NAME = re.compile(r"votes-\d{5,}\.parquet")
_REMAKE = "Vote again with the same command, which makes the shard again."
HEAD = ["image_id", "labels", "draws", "image_sha256"]
_VOTES = ("votes", "pilot", "bare")
_TYPES = {"image_id": pa.string(), "labels": pa.list_(pa.uint16()), "draws": pa.int64()}
_TYPES |= {"votes": pa.binary(), "pilot": pa.binary(), "image_sha256": pa.string(), "bare": pa.binary()}
_SCHEMA = pa.schema(_TYPES)


@dataclass(frozen=True)
class Shard:
    """A complete shard: the sha256 of its file, and its images that have no votes."""

    sha256: str
    failures: tuple[ImageFailure, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The manifest of a votes folder.

    Example:
        >>> manifest = Manifest(run, shard_images=2)  # `run` is a Provenance of 5 images
        >>> manifest.shard_count, manifest.positions(2), manifest.finished
        (3, range(4, 5), False)
    """

    provenance: Provenance  # all that determines the votes
    shard_images: int  # the number of images per shard; the last shard may hold fewer
    shards: tuple[Shard, ...] | None = None  # all shards, in order; None until the run has finished
    extends: Provenance | None = None  # the run whose draws it continues, until it has finished; None for a new run

    __repr__ = short_repr

    def __post_init__(self) -> None:
        run = self.provenance
        if self.shard_images < 1:
            raise InvalidInputError(f"shard_images must be at least 1, not {self.shard_images}.")
        if not distinct(run.image_ids):
            raise InvalidInputError("image ids must be distinct: two images of one id would share their noise.")
        if not (run.draws >= 1 and run.label_names and (run.k_max is None or run.k_max >= 1)):
            given = f"{run.draws} draws, {len(run.label_names)} labels and k_max {run.k_max}"
            raise InvalidInputError(f"draws, labels and k_max must be at least 1; not {given}.")
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

    def save(self, folder: Path) -> None:
        """Write the manifest atomically."""
        content = encode_checked(self, **_MANIFEST)
        write_atomically(folder / MANIFEST_NAME, lambda file: file.write(content))

    def consists_of(self, shard: int, voted: Sequence[str], failures: Sequence[ImageFailure]) -> bool:
        """Whether the images with votes and those that failed, each in order, are exactly the images of a shard."""
        ids, failed = self.ids(shard), dict.fromkeys(failure.image_id for failure in failures)
        in_order = list(failed) == [i for i in ids if i in failed] and len(failed) == len(failures)
        return in_order and list(voted) == [i for i in ids if i not in failed]


def load_manifest(folder: Path) -> Manifest:
    """Return the manifest of a votes folder, its shards unread; raises `VotesError` if it is missing or damaged."""
    return open_manifest(folder)[0]


def open_manifest(folder: Path) -> tuple[Manifest, str]:
    """Return the same with the sha256 of the bytes that it was made from; of a finished run it covers every shard."""
    path = folder / MANIFEST_NAME
    try:
        content, digest = read_hashed(path)
        return convert(decode_checked(content, **_MANIFEST), Manifest), digest
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
    """Return the file name of a shard."""
    return f"votes-{index:05d}.parquet"


def is_shard_file(name: str) -> bool:
    """Whether a file is named like a shard."""
    return _SHARD_NAME.fullmatch(name) is not None


def is_own_manifest(path: Path) -> bool:
    """Whether it is a manifest of votes, of any run, damaged or not: its content says so, or shards lie beside it."""
    return mentions(path, _MANIFEST["format"]) or (is_regular(path) and any(map(_is_shard, path.parent.iterdir())))


def own_shards(folder: Path) -> list[Path]:
    """Return the files that are shards of any run: as their content says, or as the manifest beside them says."""
    try:
        listed = {shard_name(index) for index in range(load_manifest(folder).shard_count)}
    except VotesError:
        listed = set()
    return [path for path in sorted(folder.iterdir()) if (path.name in listed and is_regular(path)) or _is_shard(path)]


def _is_shard(path: Path) -> bool:
    """Whether the content says that it is a shard, of any run or version."""
    return is_shard_file(path.name) and mentions(path, _SHARD)


def remove_stale(folder: Path, run: Manifest, keep: Collection[int]) -> None:
    """Remove all shards but those to keep, and the partial files of killed processes.

    A file that is no shard and lies where this run would write one raises `VotesError` before anything is removed.
    """
    ours = own_shards(folder)
    for path in (folder / shard_name(index) for index in range(run.shard_count)):
        if os.path.lexists(path) and path not in ours:
            raise VotesError(f"{path} is not a shard of votes, so it is not replaced; move it, or name another folder.")
    names = {shard_name(index) for index in keep}
    for path in ours:
        if path.name not in names:
            path.unlink()
    remove_partial_files(folder, lambda name: name == MANIFEST_NAME or is_shard_file(name))


@dataclass(frozen=True)
class _Metadata:
    """The metadata of a shard: its run, its index, its images without votes and the checksum of its rows."""

    run: str
    index: int
    failures: tuple[ImageFailure, ...]
    rows_sha256: str


def write_shard(
    folder: Path, run: Manifest, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure]
) -> Shard:
    """Write a shard atomically; rows that do not fit the run, or other images, raise `InvalidInputError`."""
    check_shard(run, index, rows, failures)
    records = [_record(row) for row in rows]
    described = _Metadata(run.run_hash, index, tuple(failures), _rows_checksum(records))
    metadata = encode_checked(described, format=_SHARD, version=_VERSION)
    table = pa.Table.from_pylist(records, schema=_SCHEMA.with_metadata({_METADATA: metadata}))
    file = io.BytesIO()
    # Votes hardly shrink at a higher level. A dictionary of distinct rows only costs, and so do statistics, which would
    # repeat short votes uncompressed.
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    pq.write_table(table, file, row_group_size=1, write_statistics=False, **options)
    write_atomically(folder / shard_name(index), lambda target: target.write(file.getvalue()))
    return Shard(hashlib.sha256(file.getvalue()).hexdigest(), tuple(failures))


def check_shard(run: Manifest, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure]) -> None:
    """Raise `InvalidInputError` unless these are the images of a shard, and their votes fit the run."""
    if not run.consists_of(index, [row.image_id for row in rows], failures):
        raise InvalidInputError(f"shard {index} must hold the images {run.ids(index)}, in this order, each once.")
    for row in rows:
        try:
            check_row(row, run.provenance)
        except InvalidInputError as error:
            raise InvalidInputError(f"image {row.image_id!r} cannot be stored: it has {error}") from error


def rows_checksum(rows: Iterable[VoteRow]) -> str:
    """The sha256 of everything in the rows."""
    return _rows_checksum(map(_record, rows))


def heads_of(rows: Iterable[VoteRow]) -> pa.Table:
    """What is known of images without their votes, as `read_shard` returns it."""
    heads = [(row.image_id, row.labels, row.draws, row.image_hash) for row in rows]
    return pa.table([pa.array([head[i] for head in heads], _TYPES[name]) for i, name in enumerate(HEAD)], HEAD)


def _record(row: VoteRow) -> dict[str, Any]:
    labels, votes = [int(label) for label in row.labels], (row.votes, row.pilot, row.bare)
    head = {"image_id": row.image_id, "labels": labels, "draws": row.draws, "image_sha256": row.image_hash}
    encoded = (None if each is None else encode_votes(each) for each in votes)
    return {**head, **dict(zip(_VOTES, encoded, strict=True))}


def _rows_checksum(records: Iterable[Mapping[str, Any]]) -> str:
    """The sha256 of all values of all rows."""
    digest = hashlib.sha256()
    for record in records:
        stored = [record[name] for name in _VOTES if name in record]
        lengths = [None if data is None else len(data) for data in stored]
        digest.update(json.dumps([[record[name] for name in HEAD], lengths]).encode())
        digest.update(b"".join(data or b"" for data in stored))
    return digest.hexdigest()


def open_shard(folder: Path, index: int, sha256: str) -> pq.ParquetFile:
    """Open a shard that has passed every check; raises `VotesError` if it has changed since."""
    return open_parquet(_read_content(folder / shard_name(index), sha256))


def read_shard(folder: Path, run: Manifest, index: int) -> tuple[Shard, pa.Table]:
    """Return a shard whose checksum, run, index and images are the right ones, and a row for each image.

    A row is the id, the labels, the draws and the hash. Anything else raises `VotesError`.

    The manifest of a finished run knows the checksum of the file. Before, all rows are compared with the checksum in
    the shard itself.
    """
    path = folder / shard_name(index)
    known = run.shards[index] if run.shards is not None else None
    content = _read_content(path, known.sha256 if known is not None else None)
    try:
        metadata, heads = _decode_shard(content, run.provenance, verify_rows=known is None)
    except (VotesError, pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise VotesError(f"{path} is damaged: {' '.join(str(error).split())}. {_REMAKE}") from error
    if metadata.run != run.run_hash:
        raise VotesError(f"{path} comes from another run than the manifest beside it; restore the right one.")
    same_failures = known is None or known.failures == metadata.failures
    voted = [str(image_id) for image_id in heads["image_id"].to_pylist()]
    if not (metadata.index == index and same_failures and run.consists_of(index, voted, metadata.failures)):
        raise VotesError(f"{path} does not hold the {len(run.ids(index))} images of shard {index}. {_REMAKE}")
    return Shard(hashlib.sha256(content).hexdigest(), metadata.failures), heads


def _read_content(path: Path, sha256: str | None) -> bytes:
    """The content of a shard; raises `VotesError` if its checksum is known and another one."""
    try:
        content = read_regular(path, MOST_TABLE)
    except OSError as error:
        raise VotesError(f"{path} cannot be read: {error.strerror}. {_REMAKE}") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise VotesError(f"{path} is damaged: it has another checksum than the one in the manifest. {_REMAKE}")
    return content


def _decode_shard(content: bytes, run: Provenance, *, verify_rows: bool) -> tuple[_Metadata, pa.Table]:
    file = open_parquet(content)
    schema, groups = file.schema_arrow, range(file.num_row_groups)
    single = all(file.metadata.row_group(i).num_rows == 1 for i in groups) or file.metadata.num_rows == 0
    if not (single and schema.equals(_SCHEMA)):
        raise VotesError("it has other columns, or not one image in each row group")
    stored = decode_checked((schema.metadata or {}).get(_METADATA, b""), format=_SHARD, version=_VERSION)
    metadata = convert(stored, _Metadata)
    table = file.read(columns=None if verify_rows else HEAD)
    records = table.to_pylist()
    if verify_rows and _rows_checksum(records) != metadata.rows_sha256:
        raise VotesError("its rows have another checksum than the one in its metadata")
    for record in records:
        _check_head(record, run)
    return metadata, table.select(HEAD).replace_schema_metadata(None)


def _check_head(record: Mapping[str, Any], run: Provenance) -> None:
    """Raise `VotesError` unless a row fits the run; only the hash of the image may be missing."""
    if any(record[name] is None for name in ("image_id", "labels", "draws")) or None in record["labels"]:
        raise VotesError(f"a row lacks its id, its labels or its draws: {record['image_id']!r}")
    with _fitting(record["image_id"]):
        check_head(tuple(record["labels"]), record["draws"], run)


@contextmanager
def _fitting(image_id: str) -> Iterator[None]:
    """Raises `VotesError`, naming the image, for what does not fit the run."""
    try:
        yield
    except InvalidInputError as error:
        raise VotesError(f"image {image_id!r} has {error} The manifest is not that of these votes.") from error


def read_rows(file: pq.ParquetFile, rows: Sequence[int], run: Provenance) -> list[VoteRow]:
    """Return the votes of these images of a shard; votes that do not fit the run raise `VotesError`."""
    try:
        records = file.read_row_groups(list(rows)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VotesError(f"the votes of {len(rows)} images cannot be read: {error}") from error
    return [_row(record, run) for record in records]


def _row(record: Mapping[str, Any], run: Provenance) -> VoteRow:
    with _fitting(record["image_id"]):
        votes = decode_votes(record["votes"] or b"", record["draws"], run)
        pilot = None if record["pilot"] is None else decode_votes(record["pilot"], run.pilot_draws, run)
        bare = None if record["bare"] is None else decode_votes(record["bare"], 1, run)
        row = VoteRow(record["image_id"], tuple(record["labels"]), votes, pilot, record["image_sha256"], bare)
        check_row(row, run)
    return row
