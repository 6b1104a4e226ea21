"""Parquet files of results: rows with page checksums, and metadata with a checksum of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multiguard.errors import DataError, InvalidInputError
from multiguard.io.files import MOST_TABLE, open_parquet, read_hashed
from multiguard.io.records import decode_checked, encode_checked

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
METADATA_KEY = b"multiguard"
_MOST_METADATA = 50_000_000  # bytes; Parquet readers refuse longer strings


@dataclass(frozen=True)
class TableKind:
    """One kind of such files."""

    name: str  # of the file
    format: str
    version: int
    folder: str  # what a folder with such a file is called
    remedy: str  # how to replace a damaged file

    def write(self, folder: Path, table: pa.Table, metadata: Mapping[str, Any], row_group_size: int = 1 << 20) -> None:
        """Write the rows and the metadata."""
        import pyarrow.parquet as pq

        try:
            text = encode_checked(metadata, format=self.format, version=self.version)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"the metadata (source, command) must be plain JSON values: {error}") from error
        if len(text) > _MOST_METADATA:
            raise InvalidInputError(
                f"the curves take {len(text):,} bytes, and {self.name} holds {_MOST_METADATA:,} at most; use fewer "
                "radii (a larger radius_step) or a smaller sweep"
            )
        options: Any = {"compression": "zstd", "write_page_checksum": True, "row_group_size": row_group_size}
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: text}), folder / self.name, **options)

    def read(self, folder: Path, parse: Callable[[dict[str, Any], pa.Table, str], T]) -> T:
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
            text = (file.schema_arrow.metadata or {}).get(METADATA_KEY, b"")
            metadata = decode_checked(text, format=self.format, version=self.version)
            return parse(metadata, file.read(use_threads=False).replace_schema_metadata(None), digest)
        except Exception as error:  # a forged file can make its reader fail in any way
            raise DataError(f"{path} cannot be used: {' '.join(str(error).split())}; {self.remedy}") from error
