"""What is shown is the largest number of few decimals that was proved."""

import math
from decimal import ROUND_FLOOR, Decimal

from hypothesis import given
from hypothesis import strategies as st

from multiguard.report.rounding import percent, plain, radius_text, rounded_down


@given(st.floats(0, 1))
def test_a_percentage_is_the_floor_of_the_number_as_written(share: float) -> None:
    expected = (Decimal(repr(share)) * 100).quantize(Decimal("0.1"), ROUND_FLOOR)
    assert percent(share) == str(expected)


@given(st.floats(0, 100), st.integers(0, 4))
def test_a_radius_is_the_floor_of_the_number_as_written(radius: float, decimals: int) -> None:
    assert Decimal(rounded_down(radius, decimals)) == Decimal(repr(radius)).quantize(
        Decimal(1).scaleb(-decimals), ROUND_FLOOR
    )


def test_a_number_of_few_decimals_keeps_them() -> None:
    assert [percent(i / 1000) for i in range(1001)] == [f"{i // 10}.{i % 10}" for i in range(1001)]


def test_just_below_is_shown_below() -> None:
    assert percent(math.nextafter(0.5, 0)) == "49.9"
    assert radius_text(math.nextafter(0.25, 0)) == "0.249"


def test_infinite_radii_are_said_in_words() -> None:
    assert radius_text(math.inf) == "cannot fail"
    assert radius_text(-math.inf) == "not certified"


def test_chosen_numbers_are_written_as_chosen() -> None:
    assert [plain(number) for number in (0.1 + 0.2, 1000, 1e-4, 0.0)] == ["0.3", "1000", "0.0001", "0"]
