"""Atomic writes, checksums, files that anyone may have written, and where a command may write."""

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from multiguard.errors import DataError, InvalidInputError
from multiguard.io.names import check_path

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MOST_TEXT = 1 << 30  # bytes of a text file; COCO's listing has half of them
MOST_TABLE = 1 << 35  # bytes of a table
_MOST_LIST = 1 << 28  # bytes of a list: ten times the longest one of a known dataset
_BLOCK = 1 << 20
RECORD_FILE = "run.json"
Content = Literal["a model", "votes", "certificates", "an attack", "a run"]
_MARKERS: dict[Content, str] = {
    "a model": "model.json",
    "votes": "manifest.json",
    "certificates": "certificates.parquet",
    "an attack": "attack.parquet",
    "a run": RECORD_FILE,
}
_PARTIAL = re.compile(r"\.(?P<name>.+)\.[^.]+\.part")  # the file that a killed process was writing to it


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that readers find the old content or the new content, even after a power cut.

    `write` gets the file, opened in binary mode. An `OSError`, of a full disk perhaps, names the file, and the old
    content stays. A link, a pipe or a device in its place raises `InvalidInputError`.
    """
    if os.path.lexists(path) and not is_regular(path):
        raise InvalidInputError(f"{path} is a link, or no regular file, and nothing is written there; remove it")
    try:
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
        sync(path.parent)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)
        raise


def is_regular(path: Path) -> bool:
    """Whether a file is there that is neither a link nor a folder, a pipe or a device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def real_path(path: Path) -> Path:
    """The path with all links followed, there or not; links that lead in a circle stay as they are."""
    return Path(os.path.realpath(path))


def remove_partial_files(folder: Path, is_ours: Callable[[str], bool]) -> None:
    """Remove partial files of killed processes, of the caller's names; no process may be writing them now."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if (match := _PARTIAL.fullmatch(path.name)) and is_ours(match["name"]):
            path.unlink(missing_ok=True)


def require_folder(path: Path) -> None:
    """Create the folder if necessary; raises `InvalidInputError` unless files can be written to it."""
    check_path("the folder", path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InvalidInputError(f"{path}: no folder that can be written to ({error.strerror}); name another") from error


def sync(path: Path) -> None:
    """Make the content of a file, or new names in a folder, survive a power cut, where both can be opened."""
    if hasattr(os, "O_DIRECTORY"):  # not on Windows
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, directly or through a link; a pipe or a device, which may never end, raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int = MOST_TEXT) -> bytes:
    """The content of a regular file; one of more than `most` bytes, one that grows, or any other raises `OSError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"{size:,} bytes are more than the {most:,} allowed", str(path))
        content = file.read(size + 1)
    if len(content) > size:
        raise OSError(errno.EFBIG, "it grows while it is read", str(path))
    return content


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file without blank ones; any other, missing or too large file raises `DataError`."""
    try:
        text = read_regular(path, _MOST_LIST).decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the root folder and the split") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as UTF-8 text ({error})") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_hashed(path: Path, most: int = MOST_TEXT) -> tuple[bytes, str]:
    """What `read_regular` returns, and the sha256 of exactly these bytes: the file may be replaced meanwhile."""
    content = read_regular(path, most)
    return content, hashlib.sha256(content).hexdigest()


def mentions(path: Path, word: str) -> bool:
    """Whether a regular file, not a link, holds the word in quotes, however large it is."""
    if not is_regular(path):
        return False
    quoted, rest = f'"{word}"'.encode(), b""
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            if quoted in rest + block:
                return True
            rest = block[-len(quoted) :]
    return False


def file_checksum(path: Path) -> str:
    """The sha256 of a regular file, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_checksum(paths: Sequence[Path]) -> str:
    """One sha256 for several files: it changes with the name, the content or the order of any of them."""
    return joined_checksum((path.name, file_checksum(path)) for path in paths)


def joined_checksum(checksums: Iterable[tuple[str, str]]) -> str:
    """One sha256 for several files, given the name and the sha256 of each in this order."""
    return hashlib.sha256("".join(f"{name} {checksum};" for name, checksum in checksums).encode()).hexdigest()


def open_parquet(content: bytes) -> "pq.ParquetFile":
    """Open the content of a Parquet file that anyone may have written, without reading its rows.

    More rows than bytes raise `ValueError`, and other content than Parquet raises `pyarrow.ArrowException`. Do not ask
    its footer about columns, which aborts the process if that part is damaged. Read them with `use_threads=False`: a
    thread that still has the bytes when Python ends aborts it, too.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    if not 0 <= file.metadata.num_rows <= len(content):
        raise ValueError(f"it claims {file.metadata.num_rows:,} rows in {len(content):,} bytes")
    return file


def check_content(out: Path, content: Content) -> None:
    """Raises `InvalidInputError` if the folder holds something else than what is to be written there."""
    for other, name in _MARKERS.items():
        if other != content and (out / name).is_file():
            raise InvalidInputError(
                f"{out} holds {other} ({name}), where {content} would go; name another folder with --out"
            )


def check_inside(home: Path, *paths: Path) -> None:
    """Raises `InvalidInputError` unless these paths, there or not, stay in the folder when links are followed."""
    inside = real_path(home)
    for path in paths:
        if path.name != ".." and not real_path(path).is_relative_to(inside):
            raise InvalidInputError(
                f"{path} is a link that leads out of {home}, to {real_path(path)}, and nothing is written there; "
                "remove the link, or make the whole folder a link"
            )
