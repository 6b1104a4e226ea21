"""Folder locks: one run writes to a folder at a time; the system releases the lock when the process ends."""

import errno
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from uuid import uuid4

from filelock import FileLock, Timeout

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io.files import read_regular, real_path, require_folder, write_atomically
from multiguard.io.ranks import this_rank

LOCK_NAME = ".multiguard.lock"
_MARK_NAME = ".multiguard.writer"  # the run that began to write last, on a file system without locks
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # of file systems without locks
_marked: set[tuple[Path, int]] = set()  # marks, each with its thread


class NoLocksWarning(UserWarning):
    """The folder is on a file system without locks, so two runs that write there are noticed only when one ends."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder for the block: no other run writes to it; raises `FolderInUseError` if another run has the lock.

    The lock ends with the process, also after a kill. A thread may lock its folder again. Among
    processes that work together the main one holds the lock for all. On a file system without locks the block runs
    after a `NoLocksWarning`, and the error is raised at its end if another run has written to the folder meanwhile.
    A folder that is missing is created, and removed again if it is still empty at the end.
    """
    created = not os.path.lexists(folder)
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
    lock, locked = FileLock(path, timeout=0, is_singleton=True, fallback_to_soft=False), True
    try:
        lock.acquire()
    except Timeout:
        remedy = "wait until it has ended, stop it, or name another folder"
        raise FolderInUseError(f"another run is writing into {folder}; {remedy}") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        locked = False
        message = "is on a file system without locks: a second run that writes there is noticed only at the end"
        warnings.warn(f"{folder} {message}; make sure that there is none", NoLocksWarning, stacklevel=3)
    try:
        if locked:
            yield
        else:
            with _mark(path.with_name(_MARK_NAME)):
                yield
    finally:
        with suppress(OSError):
            if lock.lock_counter <= 1:
                path.unlink()  # while it is locked, so that a process that has opened this file looks again
            if created:
                folder.rmdir()
        lock.release()


@contextmanager
def _mark(path: Path) -> Iterator[None]:
    """Raise at the end if another run has marked the folder since, and then spoil its mark: it fails too."""
    if (path, get_ident()) in _marked:
        yield
        return
    mark = uuid4().bytes
    write_atomically(path, lambda file: file.write(mark))
    _marked.add((path, get_ident()))
    try:
        yield
        with suppress(FileNotFoundError):
            if read_regular(path) == mark:
                return
            write_atomically(path, lambda file: file.write(b"two runs"))
        raise FolderInUseError(
            f"another run has written into {path.parent} at the same time, so its files may be damaged; run one of the "
            "two again, with --force if it cannot resume"
        )
    finally:
        _marked.discard((path, get_ident()))
        with suppress(OSError):
            if read_regular(path) == mark:
                path.unlink()
