"""Which files are ours: where a command may write, and what it may overwrite or remove."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

from multiguard.errors import InvalidInputError
from multiguard.io.files import partial_target
from multiguard.report.families import FamilyKey
from multiguard.results.attack_files import ATTACK_NAME
from multiguard.results.certificate_files import CERTIFICATES_NAME
from multiguard.votes.shards import MANIFEST_NAME, is_shard_file

RECORD_FILE = "run.json"
SOURCE_FILE = "source.json"  # in a votes folder: which images and which model

Content = Literal["a model", "votes", "certificates", "an attack", "a run"]
_MARKERS: dict[Content, str] = {
    "a model": "model.json",
    "votes": MANIFEST_NAME,
    "certificates": CERTIFICATES_NAME,
    "an attack": ATTACK_NAME,
    "a run": RECORD_FILE,
}
REPORT_NAMES: tuple[str, ...] = (*get_args(FamilyKey), "labels", "draws")
_REPORT_FILE = re.compile(rf"(?:{'|'.join(REPORT_NAMES)})\.(?:png|svg|pdf|csv|md|tex)")


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
    inside = home.resolve()
    for path in paths:
        if not path.resolve().is_relative_to(inside):
            raise InvalidInputError(
                f"{path} is a link that leads out of {home}, to {path.resolve()}, and nothing is written there; "
                "remove the link, or make the whole folder a link"
            )


def discard_model(folder: Path) -> None:
    """Remove the files that training writes; the card goes first, so that a partial model is never taken for one."""
    from multiguard.train.loop import MODEL_FILES

    for name in MODEL_FILES:
        (folder / name).unlink(missing_ok=True)


def discard_votes(folder: Path) -> None:
    """Remove the files that voting writes; the manifest goes first, so that no later run resumes the shards."""
    shards = sorted(path for path in folder.iterdir() if is_shard_file(path.name))
    for path in (folder / MANIFEST_NAME, folder / SOURCE_FILE, *shards):
        path.unlink(missing_ok=True)


def check_report_folders(folders: Iterable[Path]) -> None:
    """Raises `InvalidInputError` if a folder holds files that no report wrote."""
    for folder in folders:
        for path in _files_in(folder):
            if not path.name.startswith(".") and not _REPORT_FILE.fullmatch(path.name):
                raise InvalidInputError(
                    f"{folder} holds {path.name}, which no report wrote; --force writes beside it, or name another"
                )


def remove_stale_files(folders: Iterable[Path], kept: Iterable[Path]) -> None:
    """Remove partial files, and the figures and tables of an earlier report that are not among those kept."""
    written = set(kept)
    for folder in folders:
        for path in _files_in(folder):
            if path not in written and _REPORT_FILE.fullmatch(partial_target(path) or path.name):
                path.unlink(missing_ok=True)


def _files_in(folder: Path) -> Iterator[Path]:
    yield from [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
