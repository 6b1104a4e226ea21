"""No number that people read claims more than was proved."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from multiguard.io.rounding import (
    confidence,
    count,
    down_to_digits,
    percent,
    percent_value,
    plain,
    radius_text,
    round_down,
    round_up,
    up_to_digits,
)


@given(st.floats(0, 1))
def test_percent_floor(fraction: float) -> None:
    """A percentage is the floor of the number as written."""
    exact = (Decimal(repr(fraction)) * 100).quantize(Decimal("0.1"), ROUND_FLOOR)
    assert percent_value(fraction) == str(exact)
    assert percent(fraction) == f"{exact}%"
    ceiling = (Decimal(repr(fraction)) * 100).quantize(Decimal("0.1"), ROUND_CEILING)
    assert percent_value(fraction, ROUND_CEILING) == str(ceiling)


@given(st.floats(0, 1000), st.integers(0, 4))
def test_floor_and_ceiling(value: float, decimals: int) -> None:
    """Rounding down and up is that of the number as written."""
    exact, step = Decimal(repr(value)), Decimal(1).scaleb(-decimals)
    assert Decimal(round_down(value, decimals)) == exact.quantize(step, ROUND_FLOOR)
    assert Decimal(round_up(value, decimals)) == exact.quantize(step, ROUND_CEILING)


def test_few_decimals_kept() -> None:
    """A number of few decimals keeps them, although 1000 * 0.29 falls below 290 in floats."""
    assert [percent_value(i / 1000) for i in range(1001)] == [f"{i // 10}.{i % 10}" for i in range(1001)]
    assert [count(i / 100, ROUND_CEILING) for i in range(100)] == [f"0.{i:02}" for i in range(100)]


def test_just_below() -> None:
    """The next float below a step is shown one step lower."""
    assert percent_value(math.nextafter(0.5, 0)) == "49.9"
    assert radius_text(math.nextafter(0.25, 0)) == "0.249"


def test_extreme_floats() -> None:
    """The smallest, largest and negative-zero floats have texts, too."""
    assert (round_up(5e-324, 2), round_down(-0.0, 3), percent(5e-324)) == ("0.01", "0.000", "0.0%")
    assert float(round_down(1e300, 3)) == 1e300


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_chosen_radius_exact(number: float) -> None:
    """A chosen radius is written without loss: rounded up, it would claim what was not proved."""
    assert float(plain(number)) == number


@given(st.floats(1e-300, 0.999))
def test_confidence_floor(alpha: float) -> None:
    """The confidence is never above 1 - alpha."""
    exact = 100 * (1 - Fraction(repr(alpha)))
    assert exact - Fraction(1, 10**10) < Fraction(confidence(alpha)) <= exact


@given(st.floats(1e-300, 1e6))
def test_significant_digits(number: float) -> None:
    """Three significant digits, rounded down or up, stay within one percent."""
    exact = Fraction(repr(number))
    assert exact <= Fraction(up_to_digits(number, 3)) <= exact * Fraction(101, 100)
    assert exact * Fraction(99, 100) <= Fraction(down_to_digits(number, 3)) <= exact
