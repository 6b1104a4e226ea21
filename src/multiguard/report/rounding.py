"""Numbers as people read them: no floor is shown higher than it was proved, and no ceiling lower."""

import math

NOT_CERTIFIED = "not certified"
CANNOT_FAIL = "cannot fail"


def rounded_down(value: float, decimals: int) -> str:
    """The largest number of so many decimals that is not above a finite `value`, as text.

    A number of few decimals keeps them: 0.29 gives 0.290, although 1000 * 0.29 may fall below 290 in floats.
    """
    scale = 10**decimals
    steps = math.floor(value * scale) + 2
    while steps / scale > value:
        steps -= 1
    return f"{steps / scale:.{decimals}f}"


def rounded_up(value: float, decimals: int) -> str:
    """The smallest number of so many decimals that is not below a finite `value`, as text: for ceilings."""
    scale = 10**decimals
    steps = math.ceil(value * scale) - 2
    while steps / scale < value:
        steps += 1
    return f"{steps / scale:.{decimals}f}"


def percent(share: float) -> str:
    """A share of 0 to 1 in percent, rounded down to one decimal."""
    thousandths = math.floor(share * 1000) + 2
    while thousandths / 1000 > share:
        thousandths -= 1
    return f"{thousandths // 10}.{thousandths % 10}"


def radius_text(radius: float) -> str:
    """A certified radius rounded down to three decimals, or in words where it is infinite or there is none."""
    if math.isinf(radius):
        return CANNOT_FAIL if radius > 0 else NOT_CERTIFIED
    return rounded_down(radius, 3)


def plain(number: float) -> str:
    """A number that was chosen, not proved, as a person would write it: 0.5, 1000, 0.001."""
    return f"{number:.10g}"
