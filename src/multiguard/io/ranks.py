"""The rank of this process among those that torchrun started; a process on its own has rank 0 of 1."""

import os
from dataclasses import dataclass
from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.io.files import files_checksum


@dataclass(frozen=True)
class Rank:
    """The rank of a process among those that work together."""

    number: int = 0  # its number among all of them
    count: int = 1  # how many there are

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which prints and prepares folders for all."""
        return self.number == 0


def this_rank() -> Rank:
    """Return the rank of this process, from torchrun's environment variables; bad values raise `InvalidInputError`."""
    count, number = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK", "")
    if count == "1":
        return Rank()
    if not (count.isdecimal() and number.isdecimal() and int(number) < int(count)):
        raise InvalidInputError(
            f"WORLD_SIZE is {count!r} and RANK {number!r} in the environment; expected a number of processes and one "
            "of 0, 1, ... below it: torchrun sets both; for a single process unset WORLD_SIZE"
        )
    return Rank(int(number), int(count))


def package_checksum() -> str:
    """The sha256 of the source files of this package, as they are now."""
    return files_checksum(sorted(Path(__file__).parents[1].rglob("*.py")))


def check_code(main: str) -> None:
    """Raises `InvalidInputError` unless this process runs the code of the main one, which has this checksum."""
    if main != package_checksum():
        raise InvalidInputError(
            "this process runs other code of multiguard than the main one, though the version may be the same; install "
            "the same multiguard on every machine."
        )
