"""Folder locks: one run writes to a folder at a time; the system releases the lock when the process ends."""

import errno
import os
import socket
import stat
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io.files import real_path, require_folder
from multiguard.io.ranks import this_rank

LOCK_NAME = ".multiguard.lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without locks
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # and no waiting for a pipe
_SIGN = b"process "  # what a lock file begins with; the rest says who holds it
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
    path = real_path(folder) / LOCK_NAME
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
        handle = _open(path)
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


def _open(path: Path) -> int:
    """Open or create the lock file; a link or a file of somebody else, which we would overwrite, is refused."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o644)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _not_ours(path) from error
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1 and _is_signed(handle):
        return handle
    os.close(handle)
    raise _not_ours(path)


def _is_signed(handle: int) -> bool:
    """Whether the file is empty, or holds what a lock file holds."""
    text = os.pread(handle, len(_SIGN), 0) if hasattr(os, "pread") else b""
    return text in (b"", _SIGN)


def _not_ours(path: Path) -> InvalidInputError:
    return InvalidInputError(f"{path} is a link, or not the lock file of a run; remove it, or name another folder")


def _sign(handle: int) -> None:
    with suppress(OSError):  # the lock works without its text, on a full disk too
        os.ftruncate(handle, 0)
        os.write(handle, _SIGN + f"{os.getpid()} on {socket.gethostname()}".encode())


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
