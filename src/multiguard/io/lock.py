"""Folder locks: one run writes to a folder at a time; the system releases the lock when the process ends."""

import errno
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from multiguard.errors import FolderInUseError
from multiguard.io.files import require_folder
from multiguard.io.ranks import this_rank

LOCK_NAME = ".multiguard.lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without locks
_FAR = 1 << 30  # Windows locks bytes: this one lies beyond what is written


class NoLocksWarning(UserWarning):
    """The folder is on a file system without locks, so a second run that writes there would not be noticed."""


class _Held(threading.local):
    """The folders that this thread has locked; it may lock them again."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()


_HELD = _Held()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder for the block: no other run writes to it; raises `FolderInUseError` if another run has the lock.

    The lock ends with the process, also after a kill. Among processes that work together the main one holds it for all.
    On a file system without locks the block runs after a `NoLocksWarning`.

    Args:
        folder: The folder; created if missing, and removed again if it is still empty at the end.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with folder_lock(folder):
        ...     [path.name for path in folder.iterdir()]
        ['.multiguard.lock']
    """
    created = not folder.exists()
    require_folder(folder)
    resolved = folder.resolve()
    if resolved in _HELD.folders or not this_rank().is_main:
        yield
        return
    handle = _acquire(folder, resolved / LOCK_NAME)
    _HELD.folders.add(resolved)
    try:
        yield
    finally:
        _HELD.folders.remove(resolved)
        _release(handle, resolved / LOCK_NAME)
        if created:
            with suppress(OSError):
                folder.rmdir()


def _acquire(folder: Path, path: Path) -> int:
    """Open and lock the lock file; it is then still the one that others find under its name."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _try_lock(handle, folder):
                raise FolderInUseError(_refusal(folder, handle))
            if _is_at(handle, path):
                _sign(handle)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the path still names the open file: a process that releases the lock removes the name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    with suppress(OSError):  # the lock works without its text, on a full disk too
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _refusal(folder: Path, handle: int) -> str:
    try:
        holder = os.read(handle, 200).decode(errors="replace").strip()
    except OSError:
        holder = ""
    by = f" ({holder})" if holder else ""
    return f"another run{by} is writing into {folder}; wait until it has ended, stop it, or name another folder"


def _release(handle: int, path: Path) -> None:
    """Remove the name while the lock is held, so that a process that has opened this file looks again."""
    with suppress(OSError):
        path.unlink()
    os.close(handle)
    with suppress(OSError):
        if sys.platform == "win32":  # an open file keeps its name there
            path.unlink()


def _try_lock(handle: int, folder: Path) -> bool:
    """Lock an open file, with a warning if the file system has no locks; False if another process has locked it."""
    try:
        _lock(handle)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        warnings.warn(
            f"{folder} is on a file system without locks: a second run that writes there at the same time is not "
            "noticed; make sure that there is none",
            NoLocksWarning,
            stacklevel=2,
        )
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
