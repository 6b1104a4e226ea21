"""Folder locks: one run writes to a folder at a time; the system releases the lock when the process ends."""

import errno
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io.files import real_path, require_folder
from multiguard.io.ranks import this_rank

LOCK_NAME = ".multiguard.lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without locks


class NoLocksWarning(UserWarning):
    """The folder is on a file system without locks, so a second run that writes there would not be noticed."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder for the block: no other run writes to it; raises `FolderInUseError` if another run has the lock.

    The lock ends with the process, also after a kill. A thread may lock its folder again. Among
    processes that work together the main one holds the lock for all. On a file system without locks the block runs
    after a `NoLocksWarning`. A folder that is missing is created, and removed again if it is still empty at the end.
    """
    created = not folder.exists()
    require_folder(folder)
    if not this_rank().is_main:
        yield
        return
    path = real_path(folder) / LOCK_NAME
    with suppress(FileNotFoundError):
        found = path.lstat()  # a lock file is empty
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size:
            raise InvalidInputError(
                f"{path} is a link, or not the lock file of a run; remove it, or name another folder"
            )
    lock = FileLock(path, timeout=0, is_singleton=True, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        remedy = "wait until it has ended, stop it, or name another folder"
        raise FolderInUseError(f"another run is writing into {folder}; {remedy}") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        message = "is on a file system without locks: a second run that writes there at the same time is not noticed"
        warnings.warn(f"{folder} {message}; make sure that there is none", NoLocksWarning, stacklevel=3)
    try:
        yield
    finally:
        with suppress(OSError):
            if lock.lock_counter <= 1:
                path.unlink()  # while it is locked, so that a process that has opened this file looks again
            if created:
                folder.rmdir()
        lock.release()
