"""The rank of this process among those that torchrun started; a process on its own has rank 0 of 1."""

import os
from dataclasses import dataclass
from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.io.files import files_checksum


@dataclass(frozen=True)
class Rank:
    """The rank of a process among those that work together."""

    number: int = 0  # its number among all of them; 0 is the main process
    count: int = 1  # how many there are
    local: int = 0  # its number among those on the same machine
    restarts: int | None = None  # how often torchrun has restarted all of them; None if torchrun did not start them

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which prints and prepares folders for all."""
        return self.number == 0

    @property
    def may_discard(self) -> bool:
        """Whether this process may discard old work: the main one, unless torchrun has restarted it."""
        return self.is_main and not self.restarts


def this_rank() -> Rank:
    """Return the rank of this process, from torchrun's environment variables; bad values raise `InvalidInputError`."""
    restarts = _environment_integer("TORCHELASTIC_RESTART_COUNT")
    count = _environment_integer("WORLD_SIZE", at_least=1)
    if count is None or count == 1:
        return Rank(restarts=restarts)
    number = _environment_integer("RANK")
    if number is None or number >= count:
        raise InvalidInputError(
            f"WORLD_SIZE is {count}, so RANK must be one of 0 to {count - 1}, but it is "
            f"{'not set' if number is None else number}: torchrun sets both; for a single process unset WORLD_SIZE"
        )
    return Rank(number, count, _environment_integer("LOCAL_RANK") or 0, restarts)


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


def _environment_integer(name: str, at_least: int = 0) -> int | None:
    """The integer in an environment variable; None if it is not set."""
    if (text := os.environ.get(name)) is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= at_least):
        expected = f"expected an integer of at least {at_least}"
        raise InvalidInputError(f"{name} is {text!r} in the environment, {expected}; unset it for a single process")
    return int(text)
