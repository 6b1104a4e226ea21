"""The metadata inside a Parquet file of results, as anyone may read and rewrite it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.results.table_file import METADATA_KEY, content_with_checksum


def load_metadata(path: Path) -> dict[str, Any]:
    return json.loads(pq.read_table(path).schema.metadata[METADATA_KEY])


def edit_metadata(path: Path, metadata: Any) -> None:
    """Replace the metadata and nothing else, as somebody does who edits the file."""
    table = pq.read_table(path)
    pairs = {**table.schema.metadata, METADATA_KEY: json.dumps(metadata)}
    pq.write_table(table.replace_schema_metadata(pairs), path, compression="zstd")


def forge(path: Path, *, metadata: Any = None, table: pa.Table | None = None) -> None:
    """Replace the metadata or the table, and the checksum too, as a forger does."""
    known = load_metadata(path) if metadata is None else metadata
    rows = pq.read_table(path) if table is None else table
    path.write_bytes(content_with_checksum(rows.schema, [rows], json.dumps(known).encode()))
