"""Atomic writes, checksums, and files that anyone may have written."""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from multiguard.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_PARTIAL = re.compile(r"\.(?P<name>.+)\.[^.]+\.part")


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that readers find the old content or the new content, even after a power cut.

    If the file cannot be written, for example because the disk is full, the `OSError` names it and the old file stays.

    Args:
        path: The file.
        write: Called with the file to write to, opened in binary mode.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "result.txt"
        >>> write_atomically(path, lambda file: file.write(b"complete"))
        >>> path.read_text()
        'complete'
    """
    try:
        _write_and_replace(path, write)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)
        raise


def _write_and_replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def partial_target(path: Path) -> str | None:
    """Return the name of the file that a killed process was writing to this partial file; None for other files."""
    match = _PARTIAL.fullmatch(path.name)
    return match["name"] if match else None


def remove_partial_files(folder: Path, is_ours: Callable[[str], bool]) -> None:
    """Remove the partial files that killed processes left; nobody else may be writing these files now.

    Args:
        folder: The folder; it need not exist.
        is_ours: Whether a file of this name, once complete, belongs to the caller.
    """
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        name = partial_target(path)
        if name is not None and is_ours(name):
            path.unlink(missing_ok=True)


def require_folder(path: Path) -> None:
    """Create the folder if necessary; raises `InvalidInputError` unless files can be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InvalidInputError(f"{path}: no folder that can be written to ({error.strerror}); name another") from error


def sync_folder(folder: Path) -> None:
    """Make new file names survive a power cut, where folders can be opened (not on Windows)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def file_checksum(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "empty"
        >>> path.touch()
        >>> file_checksum(path)[:16]
        'e3b0c44298fc1c14'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_checksum(paths: Sequence[Path]) -> str:
    """Return one sha256 for several files: it changes with the name, the content or the order of any of them."""
    return hashlib.sha256("".join(f"{path.name} {file_checksum(path)};" for path in paths).encode()).hexdigest()


def open_parquet(source: Path | bytes) -> "pq.ParquetFile":
    """Open a Parquet file that anyone may have written, without reading its rows.

    Do not ask its footer about columns: pyarrow aborts the process if that part is damaged. Reading the columns
    themselves raises errors as it should.

    Args:
        source: Its path or its content.

    Raises:
        ValueError: It claims more rows than it has bytes.
        pyarrow.ArrowException: It is not a Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    file = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
    if not 0 <= file.metadata.num_rows <= size:
        raise ValueError(f"it claims {file.metadata.num_rows:,} rows in {size:,} bytes")
    return file
