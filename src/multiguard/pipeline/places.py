"""Folders that hold something else, or lie elsewhere than they seem to, are never written into."""

from pathlib import Path
from typing import Literal

from multiguard.errors import InvalidInputError
from multiguard.pipeline.record import RECORD_FILE
from multiguard.results.attack_folder import ATTACK_NAME
from multiguard.results.certificates_folder import CERTIFICATES_NAME
from multiguard.votes.manifest import MANIFEST_NAME

Holding = Literal["a model", "votes", "certificates", "an attack", "a run"]
_KNOWN_BY: dict[Holding, str] = {
    "a model": "model.json",
    "votes": MANIFEST_NAME,
    "certificates": CERTIFICATES_NAME,
    "an attack": ATTACK_NAME,
    "a run": RECORD_FILE,
}


def require_no_other(out: Path, own: Holding) -> None:
    """Pass only if the folder holds nothing of another kind than what is to be written there.

    Args:
        out: The folder to write to.
        own: What is to be written.
    """
    for kind, name in _KNOWN_BY.items():
        if kind != own and (out / name).is_file():
            raise InvalidInputError(
                f"{out} holds {kind} ({name}), where {own} would go; name another folder with --out"
            )


def require_inside(home: Path, *places: Path) -> None:
    """Pass only if what is written to these places of a folder stays in it: a link may lead anywhere.

    Args:
        home: The folder; it may itself be a link, which its owner named.
        places: Folders that are in it by their names, there or not.
    """
    inside = home.resolve()
    for place in places:
        if not place.resolve().is_relative_to(inside):
            raise InvalidInputError(
                f"{place} is a link that leads out of {home}, to {place.resolve()}, and nothing is written there; "
                "remove the link, or make the whole folder a link"
            )
