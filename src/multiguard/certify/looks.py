"""Adaptive draws: looks at growing numbers of draws, fixed beforehand."""

import math
from dataclasses import dataclass

from multiguard.certify.arguments import check_count, check_fraction
from multiguard.errors import InvalidInputError

# The plan that `look_plan` makes: it was chosen on half of the COCO images and evaluated on the other half.
_FIRST_LOOK = 50
_GROWTH = math.sqrt(2)
_LAST_FRACTION = 0.6


@dataclass(frozen=True)
class Looks:
    """The numbers of draws at which an image may stop, and what each look may spend of alpha.

    Fixed before any draw. An image may stop at any look, for any reason.

    Attributes:
        draws: n_1 < n_2 < ..., the draws taken in all at each look.
        fractions: Of alpha, one for each look: positive, their sum at most 1.

    >>> Looks(draws=(100, 1000), fractions=(0.4, 0.6)).reached(100)
    (100,)
    """

    draws: tuple[int, ...]
    fractions: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.draws or len(self.draws) != len(self.fractions):
            raise InvalidInputError(
                f"looks need one fraction of alpha each, and at least one look: got {len(self.draws)} numbers of draws "
                f"and {len(self.fractions)} fractions"
            )
        for draws in self.draws:
            check_count("draws of a look", draws)
        if any(later <= earlier for earlier, later in zip(self.draws, self.draws[1:], strict=False)):
            raise InvalidInputError(f"the draws must grow from look to look, got {self.draws}")
        positive = all(math.isfinite(fraction) and fraction > 0 for fraction in self.fractions)
        if not positive or math.fsum(self.fractions) > 1:
            raise InvalidInputError(
                f"fractions of alpha must be positive and at most 1 together, or the promise is lost: {self.fractions} "
                f"sum to {math.fsum(self.fractions)}"
            )

    def index(self, draws: int) -> int:
        """Which look has so many draws, counted from 0; raises if none has."""
        if draws not in self.draws:
            raise InvalidInputError(
                f"{draws} draws are none of the looks {self.draws}: only votes that end at a look fixed beforehand "
                "have the promise of adaptive draws"
            )
        return self.draws.index(draws)

    def reached(self, draws: int) -> tuple[int, ...]:
        """The draws of every look up to the one with so many draws; raises if none has."""
        return self.draws[: self.index(draws) + 1]


def look_plan(
    max_draws: int, *, first: int = _FIRST_LOOK, growth: float = _GROWTH, last_fraction: float = _LAST_FRACTION
) -> Looks:
    """Looks at `max_draws` and at ever fewer draws before, each `growth` times fewer, down to about `first`.

    The last look has most of alpha, the earlier ones divide the rest equally: a bound depends on its level like a
    logarithm, so early looks are cheap, and the last is hardly weaker than a single one.

    Args:
        max_draws: The draws at the last look.
        first: No look has fewer draws, unless `max_draws` is smaller.
        growth: How many times the draws of a look those of the next one are, above 1.
        last_fraction: What the last look has of alpha; all of it where it is the only one.

    >>> look_plan(1000, first=200, growth=2).draws
    (250, 500, 1000)
    """
    check_count("max_draws", max_draws)
    check_count("first", first)
    if not 1 < growth < math.inf:
        raise InvalidInputError(f"growth is the ratio of the draws of two looks, above 1 and finite, got {growth!r}")
    check_fraction("last_fraction", last_fraction)
    before = {round(max_draws / growth**i) for i in range(1, 1 + math.ceil(math.log(max_draws) / math.log(growth)))}
    early = sorted(draws for draws in before if first <= draws < max_draws)
    if not early:
        return Looks((max_draws,), (1.0,))
    fractions, last = [(1 - last_fraction) / len(early)] * len(early), last_fraction
    while math.fsum((*fractions, last)) > 1:
        last = math.nextafter(last, 0.0)
    return Looks((*early, max_draws), (*fractions, last))
