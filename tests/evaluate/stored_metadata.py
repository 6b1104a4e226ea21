"""The metadata inside a Parquet file of results, as anyone may read and rewrite it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.evaluate.parquet_tables import CHECKSUM_KEY, METADATA_KEY


def load_metadata(path: Path) -> dict[str, Any]:
    return json.loads(pq.read_table(path).schema.metadata[METADATA_KEY])


def edit_metadata(path: Path, metadata: Any) -> None:
    """Replace the metadata and nothing else, as somebody does who edits the file."""
    table = pq.read_table(path)
    pairs = {**table.schema.metadata, METADATA_KEY: json.dumps(metadata)}
    pq.write_table(table.replace_schema_metadata(pairs), path)


def forge(path: Path, *, metadata: Any = None, table: pa.Table | None = None) -> None:
    """Replace the metadata or the table, and the checksum too, as a forger does."""
    known = load_metadata(path) if metadata is None else metadata
    rows = pq.read_table(path) if table is None else table
    text = json.dumps(known).encode()
    pairs = {METADATA_KEY: text, CHECKSUM_KEY: hashlib.sha256(text).hexdigest().encode()}
    pq.write_table(rows.replace_schema_metadata(pairs), path, write_page_checksum=True)
