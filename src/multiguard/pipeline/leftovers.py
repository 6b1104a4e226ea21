"""What an interrupted report leaves in its folders, told by its names from all that is someone else's."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from multiguard.errors import InvalidInputError
from multiguard.io.files import partial_target
from multiguard.report.family import FamilyKey

NAMES: tuple[str, ...] = (*get_args(FamilyKey), "labels", "draws")
_OWN = re.compile(rf"(?:{'|'.join(NAMES)})\.(?:png|svg|pdf|csv|md|tex)")


def refuse_foreign(folders: Iterable[Path]) -> None:
    """Pass only if a report may write there: to folders that hold nothing but what an earlier one left."""
    for folder in folders:
        for path in _inside(folder):
            if not path.name.startswith(".") and not _OWN.fullmatch(path.name):
                raise InvalidInputError(
                    f"{folder} holds {path.name}, which is no report's; --force writes beside it, or name another"
                )


def remove_stale(folders: Iterable[Path], kept: Iterable[Path]) -> None:
    """Remove figures and tables of an earlier report that are not among those kept, and halves of files."""
    written = set(kept)
    for folder in folders:
        for path in _inside(folder):
            if path not in written and _OWN.fullmatch(_whole_name(path)):
                path.unlink(missing_ok=True)


def _whole_name(path: Path) -> str:
    """The name of the file, or of the one that this is a half of."""
    return partial_target(path) or path.name


def _inside(folder: Path) -> Iterator[Path]:
    yield from [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
