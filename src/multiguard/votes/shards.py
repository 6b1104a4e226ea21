"""One shard: a Parquet file with one row, and one row group, per image, so that an image is read alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.errors import InvalidInputError, VotesError
from multiguard.files import file_hash, write_atomically
from multiguard.votes.manifest import Provenance, Shard
from multiguard.votes.ranked import Ranked, vote_dtype

_SCHEMA = pa.schema(
    [
        ("image_id", pa.string()),
        ("labels", pa.list_(pa.uint16())),
        ("draws", pa.int64()),
        ("ranked", pa.binary()),
    ]
)


@dataclass(frozen=True, eq=False)
class VoteRow:
    """The votes of one image.

    Attributes:
        image_id: The id of the image.
        labels: The indices of its labels, the ground truth.
        ranked: (draws, K') uint8, or uint16 where c > 256: the labels of each draw, best first.
    """

    image_id: str
    labels: tuple[int, ...]
    ranked: Ranked


def write_shard(path: Path, rows: Sequence[VoteRow], provenance: Provenance) -> Shard:
    """Put a whole shard in place in one step and return its entry for the manifest."""
    for row in rows:
        _check_row(row, provenance)
    records = [
        {
            "image_id": row.image_id,
            "labels": row.labels,
            "draws": len(row.ranked),
            "ranked": _as_bytes(row.ranked),
        }
        for row in rows
    ]
    table = pa.Table.from_pylist(records, schema=_SCHEMA)
    write_atomically(path, lambda file: _write_table(table, file))
    return Shard(path.name, file_hash(path), len(rows))


def _write_table(table: pa.Table, file: IO[bytes]) -> None:
    # Votes hardly shrink more at a higher level; a dictionary of rows that are all different only costs.
    pq.write_table(table, file, row_group_size=1, compression="zstd", compression_level=1, use_dictionary=False)


def read_row(file: pq.ParquetFile, row: int, provenance: Provenance) -> VoteRow:
    """One image of a shard, its votes as many and in the range that the provenance says; only its bytes are read."""
    table = file.read_row_group(row).to_pylist()[0]
    dtype = np.dtype(vote_dtype(len(provenance.label_names))).newbyteorder("<")
    draws, ranks = provenance.draws, provenance.k_max
    if table["draws"] != draws or len(table["ranked"]) != draws * ranks * dtype.itemsize:
        raise VotesError(
            f"image {table['image_id']!r} holds {table['draws']} draws in {len(table['ranked'])} bytes, "
            f"where {draws} draws of {ranks} labels belong: the manifest is not that of these votes."
        )
    ranked = np.frombuffer(table["ranked"], dtype=dtype)
    native: Ranked = ranked.astype(dtype.newbyteorder("="), copy=False).reshape(draws, ranks)
    found = VoteRow(table["image_id"], tuple(table["labels"]), native)
    if not _labels_exist(found, len(provenance.label_names)):
        raise VotesError(f"image {found.image_id!r} holds a label beyond the {len(provenance.label_names)} there are.")
    return found


def read_labels(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    """The id and labels of every image of a shard, without its votes."""
    table = pq.read_table(path, columns=["image_id", "labels"])
    return [(row["image_id"], tuple(row["labels"])) for row in table.to_pylist()]


def _as_bytes(ranked: Ranked) -> bytes:
    return ranked.astype(ranked.dtype.newbyteorder("<"), copy=False).tobytes()


def _check_row(row: VoteRow, provenance: Provenance) -> None:
    labels, dtype = len(provenance.label_names), vote_dtype(len(provenance.label_names))
    shape = (provenance.draws, provenance.k_max)
    if row.ranked.shape != shape or row.ranked.dtype != dtype:
        raise InvalidInputError(
            f"image {row.image_id!r}: votes must be {np.dtype(dtype)} of shape {shape}, "
            f"not {row.ranked.dtype} of shape {row.ranked.shape}."
        )
    if not _labels_exist(row, labels):
        raise InvalidInputError(f"image {row.image_id!r}: a label index lies outside 0 .. {labels - 1}.")


def _labels_exist(row: VoteRow, labels: int) -> bool:
    return int(row.ranked.max()) < labels and all(0 <= label < labels for label in row.labels)
