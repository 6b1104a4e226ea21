"""Which files are ours: where a command may write, and what it may overwrite or remove."""

from pathlib import Path
from typing import Literal

from multiguard.errors import InvalidInputError
from multiguard.io.files import real_path

RECORD_FILE = "run.json"

Content = Literal["a model", "votes", "certificates", "an attack", "a run"]
_MARKERS: dict[Content, str] = {
    "a model": "model.json",
    "votes": "manifest.json",
    "certificates": "certificates.parquet",
    "an attack": "attack.parquet",
    "a run": RECORD_FILE,
}


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
