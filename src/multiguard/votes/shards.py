"""One shard: a Parquet file with one row, and one row group, per image, so that an image is read alone."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.files import file_checksum, open_parquet, write_atomically
from multiguard.votes.layout import check_head, check_row, decoded, encoded
from multiguard.votes.manifest import ImageFailure, Manifest, Shard
from multiguard.votes.provenance import Provenance
from multiguard.votes.row import VoteRow

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
_RUN = b"multiguard-run"  # in the metadata of the file


@dataclass(frozen=True)
class Head:
    """What is known of an image without reading its votes: its id, labels, number of draws and image."""

    image_id: str
    labels: tuple[int, ...]
    draws: int
    image_hash: str | None


def write_shard(path: Path, rows: Sequence[VoteRow], failures: Sequence[ImageFailure], run: Manifest) -> Shard:
    """Put a whole shard of this run in place in one step and return its entry."""
    schema = _SCHEMA.with_metadata({_RUN: run.run_hash})
    table = pa.Table.from_pylist([_record(row, run.provenance) for row in rows], schema=schema)
    write_atomically(path, lambda file: _write_table(table, file))
    return Shard(path.name, file_checksum(path), len(rows), tuple(failures))


def _record(row: VoteRow, provenance: Provenance) -> dict[str, Any]:
    try:
        check_row(row, provenance)
    except InvalidInputError as error:
        raise InvalidInputError(f"image {row.image_id!r} cannot be stored: it has {error}") from error
    return {
        "image_id": row.image_id,
        "labels": row.labels,
        "draws": row.draws,
        "votes": encoded(row.votes),
        "pilot": None if row.pilot is None else encoded(row.pilot),
        "image_sha256": row.image_hash,
    }


def _write_table(table: pa.Table, file: IO[bytes]) -> None:
    # Votes hardly shrink more at a higher level; a dictionary of rows that are all different only costs, and so do
    # statistics, which would repeat short votes uncompressed.
    how: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    pq.write_table(table, file, row_group_size=1, write_statistics=False, **how)


def read_row(file: pq.ParquetFile, row: int, head: Head, provenance: Provenance) -> VoteRow:
    """One image of a shard, its votes as many and in the range that the provenance says; only its bytes are read.

    Args:
        file: The shard.
        row: Which image.
        head: What was read of this image before.
        provenance: The run that it belongs to.
    """
    try:
        (table,) = file.read_row_group(row).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VotesError(f"the votes of image {head.image_id!r} cannot be read: {error}") from error
    if _head(table) != head:
        raise VotesError(f"the votes of image {head.image_id!r} are not where they were when the shard was opened.")
    try:
        votes = decoded(table["votes"] or b"", head.draws, provenance)
        pilot = None if table["pilot"] is None else decoded(table["pilot"], provenance.pilot_draws, provenance)
        found = VoteRow(table["image_id"], tuple(table["labels"]), votes, pilot, table["image_sha256"])
        check_row(found, provenance)
    except InvalidInputError as error:
        raise _misplaced(table["image_id"], error) from error
    return found


def unaltered(path: Path, sha256: str) -> bytes:
    """The content of a shard, whose sha256 is the one written down; what is read out of it cannot change any more."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise VotesError(f"{path} cannot be read: {error.strerror}.") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise VotesError(
            f"{path} is damaged: its sha256 is not the one that was written down. Run the sampling again to make it "
            "anew."
        )
    return content


def read_run(content: bytes) -> str | None:
    """The hash of the run that a shard was written for; None where it does not say."""
    written = pq.read_schema(pa.BufferReader(content)).metadata or {}
    return written.get(_RUN, b"").decode() or None


def read_heads(path: Path, content: bytes, provenance: Provenance) -> list[Head]:
    """What is known of every image of a shard, as the run may have it; no votes are decoded."""
    file = open_parquet(content)
    groups = range(file.num_row_groups)
    if not file.schema_arrow.equals(_SCHEMA) or any(file.metadata.row_group(i).num_rows > 1 for i in groups):
        raise VotesError(f"{path} is no shard of votes: it has other columns, or more than an image in a row group.")
    table = file.read(columns=["image_id", "labels", "draws", "image_sha256"])
    heads = [_head(row) for row in table.to_pylist()]
    for head in heads:
        try:
            check_head(head.labels, head.draws, provenance)
        except InvalidInputError as error:
            raise _misplaced(head.image_id, error) from error
    return heads


def _head(row: dict[str, Any]) -> Head:
    """The head of a row, none of whose cells but the image's is empty."""
    if any(row[name] is None for name in ("image_id", "labels", "draws")) or None in row["labels"]:
        raise VotesError(f"a row of votes lacks its id, its labels or its draws: {row['image_id']!r}.")
    return Head(row["image_id"], tuple(row["labels"]), row["draws"], row["image_sha256"])


def _misplaced(image_id: str, error: InvalidInputError) -> VotesError:
    return VotesError(f"image {image_id!r} has {error} The manifest is not that of these votes.")
