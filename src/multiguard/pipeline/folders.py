"""Which files are ours: where a command may write, and what it may overwrite or remove."""

import os
from pathlib import Path
from typing import Any, Literal

from multiguard.errors import InvalidInputError
from multiguard.io.files import is_regular, read_regular, real_path
from multiguard.io.records import decode_json
from multiguard.io.writer import check_foreign
from multiguard.results.attack_files import ATTACK_NAME
from multiguard.results.certificate_files import CERTIFICATES_NAME
from multiguard.votes.shards import MANIFEST_NAME, is_own_manifest, own_shards

RECORD_FILE = "run.json"
SOURCE_FILE = "source.json"  # in a votes folder: which images and which model
SOURCE_KEYS = {"data", "model", "command"}

Content = Literal["a model", "votes", "certificates", "an attack", "a run"]
_MARKERS: dict[Content, str] = {
    "a model": "model.json",
    "votes": MANIFEST_NAME,
    "certificates": CERTIFICATES_NAME,
    "an attack": ATTACK_NAME,
    "a run": RECORD_FILE,
}


def content_of(folder: Path) -> list[Content]:
    """What of ours a folder holds."""
    return [content for content, name in _MARKERS.items() if (folder / name).is_file()]


def check_content(out: Path, content: Content) -> None:
    """Raises `InvalidInputError` if the folder holds something else than what is to be written there."""
    for other, name in _MARKERS.items():
        if other != content and (out / name).is_file():
            raise InvalidInputError(
                f"{out} holds {other} ({name}), where {content} would go; name another folder with --out"
            )


def check_inside(home: Path, *paths: Path) -> None:
    """Raises `InvalidInputError` unless these paths, links followed, stay in the folder.

    Args:
        home: The folder; it may itself be a link, which its owner named.
        paths: What will be written in it, there or not.
    """
    inside = real_path(home)
    for path in paths:
        if path.name == "..":  # no link: the folder above, named so
            continue
        if not real_path(path).is_relative_to(inside):
            raise InvalidInputError(
                f"{path} is a link that leads out of {home}, to {real_path(path)}, and nothing is written there; "
                "remove the link, or make the whole folder a link"
            )


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
