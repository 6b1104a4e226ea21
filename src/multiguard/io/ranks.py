"""Which of several processes this one is, as torchrun says in the environment; one alone where it says nothing."""

import os
from dataclasses import dataclass

from multiguard.errors import InvalidInputError


@dataclass(frozen=True)
class Rank:
    """The place of a process among those that work together.

    Attributes:
        number: Its number among all of them; 0 is the main one, which speaks for all.
        count: How many there are.
        local: Its number among those on the same machine.
        restarts: How often torchrun has started all of them again; None where it was not torchrun that started them.
    """

    number: int = 0
    count: int = 1
    local: int = 0
    restarts: int | None = None

    @property
    def is_main(self) -> bool:
        """Whether this one speaks for all."""
        return self.number == 0

    @property
    def may_discard(self) -> bool:
        """Whether this one may throw old work away: the main one, unless torchrun has started it again."""
        return self.is_main and not self.restarts


def this_rank() -> Rank:
    """The place of this process; variables that say no place raise `InvalidInputError`."""
    restarts = _number("TORCHELASTIC_RESTART_COUNT")
    count = _number("WORLD_SIZE", at_least=1)
    if count is None or count == 1:
        return Rank(restarts=restarts)
    number = _number("RANK")
    if number is None or number >= count:
        raise InvalidInputError(
            f"WORLD_SIZE is {count}, so RANK must say which of 0 to {count - 1} this process is, and it is "
            f"{'not set' if number is None else number}: torchrun sets both; where one process works alone, unset "
            "WORLD_SIZE"
        )
    return Rank(number, count, _number("LOCAL_RANK") or 0, restarts)


def _number(name: str, at_least: int = 0) -> int | None:
    """The whole number that a variable of the environment holds; None where it is not set."""
    text = os.environ.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= at_least):
        raise InvalidInputError(
            f"{name} is {text!r} in the environment, expected a whole number of at least {at_least}; torchrun sets it, "
            "and where one process works alone it is to be unset"
        )
    return int(text)
