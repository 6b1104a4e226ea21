"""The metadata inside a Parquet file of results, as anyone may read and rewrite it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.evaluate.results import METADATA_KEY
from multiguard.io.records import checksum


def load_metadata(path: Path) -> dict[str, Any]:
    return json.loads(pq.read_table(path).schema.metadata[METADATA_KEY])


def edit_metadata(path: Path, metadata: Any) -> None:
    """Replace the metadata and nothing else, as somebody does who edits the file."""
    forge(path, metadata=metadata, checked=False)


def forge(path: Path, *, metadata: Any = None, table: pa.Table | None = None, checked: bool = True) -> None:
    """Replace the metadata or the table, and the checksum too, as a forger does."""
    known = load_metadata(path) if metadata is None else metadata
    if checked and isinstance(known, dict):
        known = {**known, "sha256": checksum(known)}
    rows = pq.read_table(path) if table is None else table
    pairs = {METADATA_KEY: json.dumps(known)}
    pq.write_table(rows.replace_schema_metadata(pairs), path, write_page_checksum=True)
