"""Numbers as text, for all rooms: floors are rounded down and ceilings up, so none claims more than was proved."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_EXACT = Context(prec=1100)  # holds every float with all its decimals


def round_down(value: float, decimals: int) -> str:
    """The largest number with this many decimals that is not above `value`, as text."""
    return _rounded(_decimal(value), decimals, ROUND_FLOOR)


def round_up(value: float, decimals: int) -> str:
    """The smallest number with this many decimals that is not below `value`, as text."""
    return _rounded(_decimal(value), decimals, ROUND_CEILING)


def percent(fraction: float, rounding: str = ROUND_FLOOR) -> str:
    """A fraction in percent with one decimal and the sign, rounded down by default.

    >>> percent(0.4379), percent_value(0.4371, ROUND_CEILING)
    ('43.7%', '43.8')
    """
    return f"{percent_value(fraction, rounding)}%"


def percent_value(fraction: float, rounding: str = ROUND_FLOOR) -> str:
    """The same without the sign, for columns whose heading has it."""
    return _rounded(_decimal(fraction).scaleb(2, _EXACT), 1, rounding)


def count(number: float, rounding: str) -> str:
    """A mean number of labels with two decimals: ROUND_FLOOR for a floor, ROUND_CEILING for a ceiling."""
    return _rounded(_decimal(number), 2, rounding)


def radius_text(radius: float, decimals: int = 3) -> str:
    """A certified radius, rounded down; words where it is infinite or nothing is certified.

    >>> radius_text(0.4999), radius_text(float("-inf"))
    ('0.499', 'unconfirmed')
    """
    if math.isinf(radius):
        return "unlimited" if radius > 0 else "unconfirmed"
    return round_down(radius, decimals)


def plain(number: float) -> str:
    """A chosen number, such as alpha, in the fewest digits that give it back exactly.

    >>> plain(0.5), plain(1000), plain(0.001)
    ('0.5', '1000', '0.001')
    """
    return repr(float(number)).removesuffix(".0")


def plain_percent(fraction: float) -> str:
    """A chosen fraction, such as a confidence level, in percent and exact."""
    return _digits(_decimal(fraction).scaleb(2, _EXACT))


def confidence(alpha: float) -> str:
    """1 - alpha in percent, rounded down to ten decimals: no alpha is small enough to make it 100."""
    missing = Decimal(_rounded(_decimal(alpha).scaleb(2, _EXACT), 10, ROUND_CEILING))
    return _digits(_EXACT.subtract(Decimal(100), missing))


def down_to_digits(value: float, digits: int) -> str:
    """The largest number with this many significant digits that is not above a positive `value`, as text."""
    return plain(float(Context(digits, ROUND_FLOOR).plus(_decimal(value))))


def up_to_digits(value: float, digits: int) -> str:
    """The smallest number with this many significant digits that is not below a positive `value`, as text."""
    return plain(float(Context(digits, ROUND_CEILING).plus(_decimal(value))))


def _decimal(value: float) -> Decimal:
    """The number as it is written, without a negative zero."""
    return Decimal(repr(float(value) + 0.0))


def _rounded(value: Decimal, decimals: int, rounding: str) -> str:
    return str(value.quantize(Decimal(1).scaleb(-decimals), rounding, _EXACT))


def _digits(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
