"""Parquet files that anyone may have written: opened only where they can hold what they say."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# Runs of equal values take next to no room, so that a small file can stand for more than any memory holds.
_VALUES_A_BYTE = 1000


def open_parquet(source: Path | bytes) -> pq.ParquetFile:
    """The file, none of its rows read yet; one that claims far more values than its bytes can hold is refused.

    Args:
        source: Where it lies, or its content.

    Raises:
        ValueError: It claims too much.
        pyarrow.ArrowException: It is no Parquet file.
    """
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    file = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    values = max((group.column(i).num_values for group in groups for i in range(group.num_columns)), default=0)
    if file.metadata.num_rows > size or values > _VALUES_A_BYTE * size:
        raise ValueError(f"it claims {file.metadata.num_rows:,} rows and {values:,} values in {size:,} bytes")
    return file
