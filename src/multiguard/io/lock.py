"""One writer for a folder at a time: a lock that the system lets go of when the process ends, however it ends."""

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

LOCK_NAME = ".multiguard.io.lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems that know no locks
_FAR = 1 << 30  # Windows locks bytes: this one is beyond all that is written


class NoLocksWarning(UserWarning):
    """The folder lies on a file system without locks, so that a second run that writes there would not be noticed."""


class _Held(threading.local):
    """The folders that this thread has locked: inside it need not ask again."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()


_HELD = _Held()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """No other run writes into this folder while the block lasts; where one does, `FolderInUseError`.

    The lock goes with the process: after a kill none is left behind. Of processes that work together the main one holds
    it for all. A file system without locks is written to without, after a `NoLocksWarning`.

    Args:
        folder: The folder; made if it is not there, and removed again if nothing was put into it.
    """
    made = not folder.exists()
    require_folder(folder)
    place = folder.resolve()
    if place in _HELD.folders or not this_rank().is_main:
        yield
        return
    handle = _acquired(folder, place / LOCK_NAME)
    _HELD.folders.add(place)
    try:
        yield
    finally:
        _HELD.folders.remove(place)
        _release(handle, place / LOCK_NAME)
        if made:
            with suppress(OSError):
                folder.rmdir()


def _acquired(folder: Path, path: Path) -> int:
    """The lock file, open, locked, and still the one that others find under its name."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _locked(handle, folder):
                raise FolderInUseError(_refusal(folder, handle))
            if _is_at(handle, path):
                _sign(handle)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the path still names the open file: who let go of the lock took the name away."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    with suppress(OSError):  # a full disk is no reason not to lock
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _refusal(folder: Path, handle: int) -> str:
    try:
        holder = os.read(handle, 200).decode(errors="replace").strip()
    except OSError:
        holder = ""
    by = f" ({holder})" if holder else ""
    return f"another run{by} is writing into {folder}; wait until it has ended or stop it, or name another folder"


def _release(handle: int, path: Path) -> None:
    """Take the name away while the lock is held, so that whoever waits for it looks again."""
    with suppress(OSError):
        path.unlink()
    os.close(handle)
    with suppress(OSError):
        if sys.platform == "win32":  # where an open file keeps its name
            path.unlink()


def _locked(handle: int, folder: Path) -> bool:
    """Lock an open file, or say that another has; of a file system without locks the user is warned."""
    try:
        _lock(handle)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        warnings.warn(
            f"{folder} lies on a file system without locks: a second run that writes there at the same time is not "
            "noticed; see to it that there is none",
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
