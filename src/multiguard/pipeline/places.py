"""Folders that hold something else are never written into: what each kind is known by."""

from pathlib import Path
from typing import Literal

from multiguard.errors import InvalidInputError
from multiguard.evaluate.attack_folder import ATTACK_NAME
from multiguard.evaluate.folder import CERTIFICATES_NAME
from multiguard.pipeline.record import RECORD_FILE
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
