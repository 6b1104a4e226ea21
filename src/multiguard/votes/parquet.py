"""Parquet files that anyone may have written: opened only where they can hold the rows that they say."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def open_parquet(source: Path | bytes) -> pq.ParquetFile:
    """The file, none of its rows read yet; one that claims more rows than it has bytes is refused.

    Nobody may ask its footer about columns: pyarrow ends the whole process where that part of it is damaged. Reading
    the columns themselves raises errors as it should.

    Args:
        source: Where it lies, or its content.

    Raises:
        ValueError: It claims too much.
        pyarrow.ArrowException: It is no Parquet file.
    """
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    file = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
    if not 0 <= file.metadata.num_rows <= size:
        raise ValueError(f"it claims {file.metadata.num_rows:,} rows in {size:,} bytes")
    return file
