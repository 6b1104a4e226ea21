"""Numbers as people read them: no floor is shown higher than it was proved, and no ceiling lower."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

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
    """A number that was chosen, not proved, in the fewest digits that say it without loss: 0.5, 1000, 0.001."""
    return repr(float(number)).removesuffix(".0")


def in_percent(share: float) -> str:
    """A share that was chosen, such as a level, in percent and without loss."""
    return _digits(100 * Decimal(repr(float(share))))


def confidence(alpha: float) -> str:
    """1 - alpha in percent, rounded down to ten decimals: no alpha is small enough to make it 100."""
    with localcontext(prec=40, rounding=ROUND_FLOOR):
        return _digits((100 * (1 - Decimal(repr(float(alpha))))).quantize(Decimal("1e-10")))


def up_to_digits(value: float, digits: int) -> str:
    """The smallest number of so many significant digits that is not below a positive `value`, as text."""
    with localcontext(prec=digits, rounding=ROUND_CEILING):
        return plain(float(+Decimal(repr(float(value)))))


def _digits(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
