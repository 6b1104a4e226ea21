"""JSON files that vouch for themselves: each holds the sha256 of all else it says, so that an edited one is known."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiguard.errors import VotesError
from multiguard.io.files import write_atomically
from multiguard.io.records import checksum, decode_json

VERSION = 3


def write_sealed(path: Path, kind: str, said: Mapping[str, Any]) -> None:
    """Put the file in place in one step: a reader sees the old one or the new one."""
    described = json.loads(json.dumps({"format": kind, "version": VERSION, **said}))
    text = json.dumps({**described, "sha256": checksum(described)}, indent=1)
    write_atomically(path, lambda file: file.write(text.encode()))


def read_sealed(path: Path, kind: str, mend: str) -> dict[str, Any]:
    """What the file says, as it was written; a file of another kind, or altered since, raises `VotesError`.

    Args:
        path: The file.
        kind: Its format.
        mend: What to do about a damaged one, as a sentence.
    """
    try:
        stored = decode_json(path.read_bytes(), dict[str, Any])
    except (OSError, ValueError) as error:
        raise VotesError(f"{path} cannot be read: {error}. {mend}") from error
    if not isinstance(stored, dict) or not {"format", "version", "sha256"} <= stored.keys():
        raise VotesError(f"{path} is damaged: it says neither its format nor its sha256. {mend}")
    found = (stored["format"], stored["version"])
    if found != (kind, VERSION):
        raise VotesError(
            f"{path} has format {found[0]!r}, version {found[1]!r}; "
            f"this multiguard reads {kind!r}, version {VERSION}. Read it with the version that wrote it."
        )
    if stored["sha256"] != checksum(stored):
        raise VotesError(f"{path} was altered after it was written. {mend}")
    return stored
