"""Several files of one folder that change together: a reader finds the old ones or the new ones.

New files are written into a folder of their own. Renaming it to `.next` is the moment at which they take effect, since
a reader looks there first; then each is moved to its place. Whatever is killed at whatever moment, what a reader finds
through `place` is all old or all new.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from multiguard.io.files import sync_folder

_PART, _NEXT = ".part", ".next"


def place(folder: Path, name: str) -> Path:
    """Where a file of the set is now."""
    waiting = folder / _NEXT / name
    return waiting if waiting.exists() and not (folder / _NEXT).is_symlink() else folder / name


def replace_together(folder: Path, names: Sequence[str], write: Callable[[Path], None]) -> None:
    """Let `write` make these files in a new folder, then put them in place of the old ones in one step.

    Args:
        folder: A folder that is there; its other files are left alone.
        names: The files, which are moved in this order.
        write: Writes all of them into the folder it is given; if it fails, nothing has changed.
    """
    settle(folder, names)
    part = folder / _PART
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        write(part)
        sync_folder(part)
        part.rename(folder / _NEXT)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    settle(folder, names)


def settle(folder: Path, names: Sequence[str]) -> None:
    """Move files that have taken effect to their places, as a writer that was killed may not have done."""
    waiting = folder / _NEXT
    if waiting.is_symlink():
        waiting.unlink()  # no writer makes a link: it would move files of another folder
    if not waiting.exists():
        return
    sync_folder(folder)
    for name in names:
        if (waiting / name).exists():
            (waiting / name).replace(folder / name)
    sync_folder(folder)
    waiting.rmdir()
