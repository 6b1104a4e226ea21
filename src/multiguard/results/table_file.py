"""A Parquet file that holds a table, its metadata and a checksum: it is read exactly as it was written, or refused."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multiguard.certify import make_rule
from multiguard.certify.arguments import check_alpha
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import CertifyConfig
from multiguard.io.files import MOST_TABLE, mentions, open_parquet, read_hashed, write_atomically
from multiguard.io.records import decode_json, encode_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")
METADATA_KEY, CHECKSUM_KEY = b"multiguard", b"multiguard-sha256"
# Before the checksum, so that it is found without parsing the file. JSON escapes the zero byte.
_MARK = b"\0sha256:"
_BLANK = b"0" * 64
_MOST_METADATA = 50_000_000  # bytes; Parquet readers refuse longer strings


@dataclass(frozen=True)
class TableKind:
    """One kind of such files."""

    name: str  # of the file
    format: str
    version: int  # of the format that is written
    folder: str  # what a folder with such a file is called
    remedy: str  # how to replace a damaged file

    def write(self, folder: Path, schema: pa.Schema, tables: Iterable[pa.Table], metadata: dict[str, Any]) -> None:
        """Write the rows of these tables, a row group each; the file is there complete or not at all."""
        try:
            text = encode_json({"format": self.format, "version": self.version, **metadata})
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"the metadata (source, command) must be plain JSON values: {error}") from error
        if len(text) > _MOST_METADATA:
            raise InvalidInputError(
                f"the curves take {len(text):,} bytes, and {self.name} holds {_MOST_METADATA:,} at most; use fewer "
                "radii (a larger --radius-step) or a smaller sweep"
            )
        content = content_with_checksum(schema, tables, text)
        write_atomically(folder / self.name, lambda file: file.write(content))

    def read(self, folder: Path, parse: Callable[[dict[str, Any], pq.ParquetFile, str], T]) -> T:
        """What `parse` makes of the metadata, the rows and the sha256 of the file, all of the same bytes.

        A file that is not as it was written raises `DataError`.
        """
        path = folder / self.name
        try:
            content, digest = read_hashed(path, MOST_TABLE)
        except FileNotFoundError as error:
            raise DataError(f"{folder} is not {self.folder}: it has no {self.name}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        try:
            _check_content(content)
            file = open_parquet(content)
            return parse(self._metadata(file.schema_arrow), file, digest)
        except Exception as error:  # a forged file can make its reader fail in any way
            raise DataError(f"{path} cannot be used: {' '.join(str(error).split())}; {self.remedy}") from error

    def recognises(self, path: Path) -> bool:
        """Whether the content says that it is such a file, of any version, damaged or not."""
        return mentions(path, self.format)

    def _metadata(self, schema: pa.Schema) -> dict[str, Any]:
        metadata = decode_json(schema.metadata[METADATA_KEY], dict[str, Any])
        stored = metadata.pop("format", None), metadata.pop("version", None)
        if stored[0] != self.format or stored[1] != self.version:
            raise ValueError(
                f"it has format {stored[0]!r}, version {stored[1]!r}; this multiguard reads {self.format!r}, version "
                f"{self.version}"
            )
        return metadata


def content_with_checksum(schema: pa.Schema, tables: Iterable[pa.Table], metadata: bytes) -> memoryview:
    """A Parquet file with this metadata and the sha256 of the file itself, taken while its own digits are zeros."""
    import pyarrow.parquet as pq

    file, pairs = io.BytesIO(), {METADATA_KEY: metadata, CHECKSUM_KEY: _MARK + _BLANK}
    with pq.ParquetWriter(file, schema.with_metadata(pairs), compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
    content = file.getbuffer()
    start = _checksum_start(content)
    content[start : start + len(_BLANK)] = hashlib.sha256(content).hexdigest().encode()
    return content


def _check_content(content: bytes) -> None:
    """Raises unless every byte is as it was written; nothing is parsed before."""
    start = _checksum_start(content)
    end, digest = start + len(_BLANK), hashlib.sha256()
    for part in (memoryview(content)[:start], _BLANK, memoryview(content)[end:]):
        digest.update(part)
    if digest.hexdigest().encode() != content[start:end]:
        raise ValueError("it was edited or damaged: its checksum is another one")


def _checksum_start(content: bytes | memoryview) -> int:
    ends = [match.end() for match in re.finditer(re.escape(_MARK), content)]
    if len(ends) != 1:
        raise InvalidInputError("it holds no checksum, or more than one: it is of another version, or damaged")
    return ends[0]


def config_record(config: CertifyConfig) -> dict[str, Any]:
    """A config, whose n is a number, as files hold it: flat, with the options of its own rule only."""
    return {"rule": config.rule.name, **config.rule.options, "alpha": config.alpha, "n": config.draws}


def parse_config(record: Mapping[str, Any]) -> CertifyConfig:
    """The config of a record; raises `InvalidInputError` unless exactly its parameters are there."""
    options = {name: record[name] for name in ("k", "k_prime", "threshold") if name in record}
    if record.keys() != {"rule", "alpha", "n", *options}:
        raise InvalidInputError(f"a config has a rule, its options, alpha and n, not {', '.join(map(str, record))}")
    return CertifyConfig(make_rule(record["rule"], **options), check_alpha(record["alpha"]), parse_count(record["n"]))


def parse_count(value: str | int) -> int:
    """A number of draws, labels or images."""
    number = int(value)
    if isinstance(value, bool | float) or not 0 <= number < 2**63:
        raise ValueError(f"a count must be an integer between 0 and 2^63, not {value}")
    return number
