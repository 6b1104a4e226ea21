"""Files that are there whole or not at all, and their hashes."""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from multiguard.errors import InvalidInputError

_HALF = re.compile(r"\.(?P<name>.+)\.[^.]+\.part")


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a reader finds the old one or the new one whole, even after a power cut.

    Where it cannot be written, a full disk for one, the `OSError` names it and the old one stays.
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
    """The name of the file that a killed process left this half of; None where it is no half."""
    half = _HALF.fullmatch(path.name)
    return half["name"] if half else None


def remove_partial_files(folder: Path, ours: Callable[[str], bool]) -> None:
    """Remove what a killed process left of files with names of ours; nobody else may be writing them now."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        name = partial_target(path)
        if name is not None and ours(name):
            path.unlink(missing_ok=True)


def require_folder(path: Path) -> None:
    """Pass only if this is a folder that files can be written to, made if need be; else `InvalidInputError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InvalidInputError(f"{path}: no folder that can be written to ({error.strerror}); name another") from error


def sync_folder(folder: Path) -> None:
    """Make the new name itself survive a loss of power, where folders can be opened (not on Windows)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def files_hash(paths: Sequence[Path]) -> str:
    """One sha256 for several files: it changes with the name, the content or the order of any of them."""
    return hashlib.sha256("".join(f"{path.name} {file_hash(path)};" for path in paths).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
