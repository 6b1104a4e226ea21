"""Which of several processes this one is, as torchrun says in the environment; one alone where it says nothing."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """The place of a process among those that work together.

    Attributes:
        number: Its number among all of them; 0 is the main one, which speaks for all.
        count: How many there are.
        local: Its number among those on the same machine.
    """

    number: int = 0
    count: int = 1
    local: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this one speaks for all."""
        return self.number == 0


def this_rank() -> Rank:
    """The place of this process."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Rank()
    return Rank(int(os.environ.get("RANK", "0")), count, int(os.environ.get("LOCAL_RANK", "0")))
