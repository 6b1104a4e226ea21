"""Who may write: one run at a time has the lock of a folder, and of processes that work together the main one."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io.files import files_checksum, is_regular, real_path, require_folder

LOCK_NAME = ".multiguard.lock"
_HELD_NAME = ".multiguard.held"  # whose existence is the lock on a file system without locks
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # of file systems without locks


@dataclass(frozen=True)
class Rank:
    """The number of a process among those that work together, and how many there are."""

    number: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which prints and prepares folders for all."""
        return self.number == 0


def this_rank() -> Rank:
    """The rank of this process, from torchrun's environment variables; bad values raise `InvalidInputError`."""
    count, number = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK", "")
    if count == "1":
        return Rank()
    if not (count.isdecimal() and number.isdecimal() and int(number) < int(count)):
        raise InvalidInputError(
            f"WORLD_SIZE is {count!r} and RANK {number!r} in the environment; expected a number of processes and one "
            "of 0, 1, ... below it: torchrun sets both; for a single process unset WORLD_SIZE"
        )
    return Rank(int(number), int(count))


def package_checksum() -> str:
    """The sha256 of the source files of this package, as they are now."""
    return files_checksum(sorted(Path(__file__).parents[1].rglob("*.py")))


def check_code(main: str) -> None:
    """Raises `InvalidInputError` unless this process runs the code of the main one, which has this checksum."""
    if main != package_checksum():
        raise InvalidInputError(
            "this process runs other code of multiguard than the main one, though the version may be the same; install "
            "the same multiguard on every machine."
        )


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder for the block: no other run writes to it; raises `FolderInUseError` if another run has the lock.

    The lock ends with the process, also after a kill. A thread may lock its folder again. Among processes that work
    together the main one holds the lock for all. On a file system without locks a file is the lock; after a kill
    the next run on the same machine finds it stale. A folder that is missing is created, and removed again if it is
    still empty at the end.
    """
    created = not os.path.lexists(folder)
    require_folder(folder)
    if not this_rank().is_main:
        yield
        return
    path = real_path(folder) / LOCK_NAME
    if os.path.lexists(path) and not is_regular(path):
        raise InvalidInputError(f"{path} is a link, or not the lock file of a run; remove it, or name another folder")
    lock = _acquired(path, folder)
    try:
        yield
    finally:
        with suppress(OSError):
            if lock.lock_counter <= 1 and path.stat().st_size == 0:
                path.unlink()  # while it is locked, so that a process that has opened this file looks again
        lock.release()
        with suppress(OSError):
            if created:
                folder.rmdir()


def _acquired(path: Path, folder: Path) -> FileLock | SoftFileLock:
    """The lock of the system, or where the file system has none that of a file."""
    try:
        try:
            lock = FileLock(path, timeout=0, is_singleton=True, fallback_to_soft=False)
            lock.acquire()
        except OSError as error:
            if isinstance(error, Timeout) or error.errno not in _NO_LOCKS:
                raise
            lock = SoftFileLock(path.with_name(_HELD_NAME), timeout=0, is_singleton=True)
            lock.acquire()
        return lock
    except Timeout as error:
        remedy = "wait until it has ended, stop it, or name another folder"
        if Path(error.lock_file).name == _HELD_NAME:
            remedy += f"; after a crash on another machine, remove {_HELD_NAME} there"
        raise FolderInUseError(f"another run is writing into {folder}; {remedy}") from None
