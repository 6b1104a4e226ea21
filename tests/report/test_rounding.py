"""What is shown is the largest number of few decimals that was proved."""

import math
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from multiguard.report.rounding import (
    confidence,
    percent_value,
    plain,
    plain_percent,
    radius_text,
    round_down,
    up_to_digits,
)


@given(st.floats(0, 1))
def test_a_percentage_is_the_floor_of_the_number_as_written(share: float) -> None:
    expected = (Decimal(repr(share)) * 100).quantize(Decimal("0.1"), ROUND_FLOOR)
    assert percent_value(share) == str(expected)


@given(st.floats(0, 100), st.integers(0, 4))
def test_a_radius_is_the_floor_of_the_number_as_written(radius: float, decimals: int) -> None:
    assert Decimal(round_down(radius, decimals)) == Decimal(repr(radius)).quantize(
        Decimal(1).scaleb(-decimals), ROUND_FLOOR
    )


def test_a_number_of_few_decimals_keeps_them() -> None:
    assert [percent_value(i / 1000) for i in range(1001)] == [f"{i // 10}.{i % 10}" for i in range(1001)]


def test_just_below_is_shown_below() -> None:
    assert percent_value(math.nextafter(0.5, 0)) == "49.9"
    assert radius_text(math.nextafter(0.25, 0)) == "0.249"


def test_infinite_radii_are_said_in_words() -> None:
    assert radius_text(math.inf) == "any change"
    assert radius_text(-math.inf) == "unconfirmed"


def test_chosen_numbers_are_written_as_chosen() -> None:
    assert [plain(number) for number in (0.3, 1000, 1e-4, 0.0, 20)] == ["0.3", "1000", "0.0001", "0", "20"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_radius_asked_for_is_written_without_loss(number: float) -> None:
    """Rounded to a larger radius, it would claim what was not proved."""
    assert float(plain(number)) == number


def test_a_level_in_percent_has_no_noise_behind_it() -> None:
    assert [plain_percent(share) for share in (0.57, 0.9, 0.999, 1e-3)] == ["57", "90", "99.9", "0.1"]


@given(st.floats(1e-300, 0.999))
def test_confidence_is_never_more_than_was_promised(alpha: float) -> None:
    promised = 100 * (1 - Fraction(repr(alpha)))
    assert promised - Fraction(1, 10**10) < Fraction(confidence(alpha)) <= promised


def test_confidence_as_people_write_it() -> None:
    assert [confidence(alpha) for alpha in (0.001, 0.05, 1e-12, 1e-200)] == ["99.9", "95", *["99.9999999999"] * 2]


@given(st.floats(1e-300, 1e6))
def test_an_expected_number_of_errors_is_rounded_up(number: float) -> None:
    shown = Fraction(up_to_digits(number, 3))
    assert Fraction(repr(number)) <= shown <= Fraction(repr(number)) * Fraction(101, 100)


def test_few_digits_stay_as_they_are() -> None:
    assert [up_to_digits(number, 3) for number in (0.5, 1.2e-10, 0.12345, 1234.0)] == [
        "0.5",
        "1.2e-10",
        "0.124",
        "1240",
    ]
