"""How a folder describes itself: JSON that holds the sha256 of all else it says, so that an edited one is known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiguard.errors import DataError
from multiguard.io.records import checksum, decode_json
from multiguard.results.fileset import place


@dataclass(frozen=True)
class Description:
    """The file in which a kind of folder says what it holds.

    Attributes:
        name: The file's name.
        format: What it calls its format.
        version: The version that is read and written.
        kind: What the folder is, in words.
        again: How to make it anew, in words.
    """

    name: str
    format: str
    version: int
    kind: str
    again: str

    def load(self, folder: Path) -> dict[str, Any]:
        """What the folder says, of the format that is known and as it was written; else `DataError`."""
        path = place(folder, self.name)
        try:
            stored = decode_json(path.read_bytes(), dict[str, Any])
            known = (stored["format"], stored["version"]) == (self.format, self.version)
            whole = stored["sha256"] == checksum(stored)
        except FileNotFoundError as error:
            raise DataError(f"{folder} is not {self.kind}: it has no {self.name}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        if not known:
            raise DataError(f"{path} is not of format {self.format!r}, version {self.version}; {self.again}")
        if not whole:
            raise DataError(f"{path} was altered after it was written; {self.again}")
        return dict(stored)
