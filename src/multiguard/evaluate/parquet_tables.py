"""Parquet files of results: rows with page checksums, and metadata with a checksum of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multiguard.errors import DataError, InvalidInputError
from multiguard.io.files import MOST_TABLE, open_parquet, read_hashed
from multiguard.io.records import decode_json, encode_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")
METADATA_KEY, CHECKSUM_KEY = b"multiguard", b"multiguard-sha256"
_MOST_METADATA = 50_000_000  # bytes; Parquet readers refuse longer strings


@dataclass(frozen=True)
class TableKind:
    """One kind of such files."""

    name: str  # of the file
    format: str
    version: int  # of the format that is written
    folder: str  # what a folder with such a file is called
    remedy: str  # how to replace a damaged file

    def write(self, path: Path, schema: pa.Schema, tables: Iterable[pa.Table], metadata: dict[str, Any]) -> None:
        """Write the rows of these tables, a row group each."""
        import pyarrow.parquet as pq

        try:
            text = encode_json({"format": self.format, "version": self.version, **metadata})
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"the metadata (source, command) must be plain JSON values: {error}") from error
        if len(text) > _MOST_METADATA:
            raise InvalidInputError(
                f"the curves take {len(text):,} bytes, and {self.name} holds {_MOST_METADATA:,} at most; use fewer "
                "radii (a larger radius_step) or a smaller sweep"
            )
        pairs = {METADATA_KEY: text, CHECKSUM_KEY: hashlib.sha256(text).hexdigest().encode()}
        described = schema.with_metadata(pairs)
        with pq.ParquetWriter(path, described, compression="zstd", write_page_checksum=True) as writer:
            for table in tables:
                writer.write_table(table.replace_schema_metadata(pairs))

    def read(self, folder: Path, parse: Callable[[dict[str, Any], pq.ParquetFile, str], T]) -> T:
        """What `parse` makes of the metadata, the rows and the sha256 of the file, all of the same bytes.

        A damaged file, and one whose metadata was edited, raises `DataError`.
        """
        path = folder / self.name
        try:
            content, digest = read_hashed(path, MOST_TABLE)
        except FileNotFoundError as error:
            raise DataError(f"{folder} is not {self.folder}: it has no {self.name}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        try:
            file = open_parquet(content)
            return parse(self._metadata(file.schema_arrow), file, digest)
        except Exception as error:  # a forged file can make its reader fail in any way
            raise DataError(f"{path} cannot be used: {' '.join(str(error).split())}; {self.remedy}") from error

    def _metadata(self, schema: pa.Schema) -> dict[str, Any]:
        text, digest = schema.metadata[METADATA_KEY], schema.metadata.get(CHECKSUM_KEY)
        metadata = decode_json(text, dict[str, Any])
        stored = metadata.pop("format", None), metadata.pop("version", None)
        if stored[0] != self.format or stored[1] != self.version:
            raise ValueError(
                f"it has format {stored[0]!r}, version {stored[1]!r}; this multiguard reads {self.format!r}, version "
                f"{self.version}"
            )
        if digest != hashlib.sha256(text).hexdigest().encode():
            raise ValueError("its metadata was edited or damaged: checksum mismatch")
        return metadata
