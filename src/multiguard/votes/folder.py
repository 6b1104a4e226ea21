"""The files of a votes folder beside its manifest and shards, and what may be replaced or removed."""

import os
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import is_regular, read_regular
from multiguard.io.records import decode_json
from multiguard.io.writer import check_foreign
from multiguard.votes.shards import MANIFEST_NAME, is_own_manifest, own_shards

SOURCE_FILE = "source.json"  # which images and which model
SOURCE_KEYS = {"data", "model", "command", "files"}  # files: the hash of their names, sizes and times


def read_source(folder: Path) -> dict[str, Any]:
    """Which images and which model a votes folder names; empty where it names none, or the file is damaged.

    >>> read_source(folder)  # a votes folder that was made in Python
    {}
    """
    try:
        return decode_json(read_regular(folder / SOURCE_FILE), dict[str, Any])
    except (OSError, ValueError):
        return {}


def discard_votes(folder: Path) -> None:
    """Remove the files that voting writes; the manifest goes first, so that no later run resumes the shards."""
    _check_votes(folder)
    for path in (folder / MANIFEST_NAME, folder / SOURCE_FILE, *own_shards(folder)):
        path.unlink(missing_ok=True)


def check_votes_folder(folder: Path, *, force: bool) -> None:
    """Raises `InvalidInputError` if a folder without votes holds something else; `force` writes beside it.

    A manifest or a source that is not of votes is never replaced.
    """
    _check_votes(folder)
    if not force and folder.is_dir() and not (folder / MANIFEST_NAME).exists():
        ours = [folder / SOURCE_FILE, *own_shards(folder)]
        check_foreign([folder], ours.__contains__)


def _check_votes(folder: Path) -> None:
    checks = {MANIFEST_NAME: is_own_manifest, SOURCE_FILE: _is_own_source}
    for name, is_ours in checks.items():
        if os.path.lexists(folder / name) and not is_ours(folder / name):
            raise InvalidInputError(
                f"{folder / name} is not of votes, so it is not replaced; move it, or name another folder with --out"
            )


def _is_own_source(path: Path) -> bool:
    try:
        return is_regular(path) and decode_json(read_regular(path), dict[str, Any]).keys() == SOURCE_KEYS
    except (OSError, ValueError):
        return False
