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
_THREAD = threading.local()  # its `held`: the lock files that this thread holds; it may lock these folders again


class NoLocksWarning(UserWarning):
    """The folder is on a file system without locks, so a second run that writes there would not be noticed."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder for the block: no other run writes to it; raises `FolderInUseError` if another run has the lock.

    The lock ends with the process, also after a kill. Among processes that work together the main one holds it for all.
    On a file system without locks the block runs after a `NoLocksWarning`. A folder that is missing is created, and
    removed again if it is still empty at the end.
    """
    created = not folder.exists()
    require_folder(folder)
    path = folder.resolve() / LOCK_NAME
    held: set[Path] = _THREAD.__dict__.setdefault("held", set())
    if path in held or not this_rank().is_main:
        yield
        return
    handle = _acquire(folder, path)
    held.add(path)
    try:
        yield
    finally:
        held.remove(path)
        _release(handle, path)
        if created:
            with suppress(OSError):
                folder.rmdir()


def _acquire(folder: Path, path: Path) -> int:
    """Open and lock the lock file; it is then still the one that others find under its name."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock_or_refuse(handle, folder)
            with suppress(FileNotFoundError):  # the last holder removed the name after this process opened the file
                if os.path.samestat(os.fstat(handle), path.stat()):
                    _sign(handle)
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _sign(handle: int) -> None:
    with suppress(OSError):  # the lock works without its text, on a full disk too
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _release(handle: int, path: Path) -> None:
    """Remove the name while the lock is held, so that a process that has opened this file looks again."""
    with suppress(OSError):
        path.unlink()
    os.close(handle)
    with suppress(OSError):
        if sys.platform == "win32":  # an open file keeps its name there
            path.unlink()


def _lock_or_refuse(handle: int, folder: Path) -> None:
    """Lock an open file; warns if the file system has no locks, and raises if another process has locked it."""
    try:
        _lock(handle)
    except (BlockingIOError, PermissionError):
        text = b""
        with suppress(OSError):
            text = os.read(handle, 200).strip()
        holder = f" ({text.decode(errors='replace')})" if text else ""
        remedy = "wait until it has ended, stop it, or name another folder"
        raise FolderInUseError(f"another run{holder} is writing into {folder}; {remedy}") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        message = "is on a file system without locks: a second run that writes there at the same time is not noticed"
        warnings.warn(f"{folder} {message}; make sure that there is none", NoLocksWarning, stacklevel=2)


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
