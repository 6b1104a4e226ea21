"""What a caller of the sampler may hand in, and one clear sentence for each thing that is not allowed."""

import numbers
import operator

from multiguard.errors import InvalidInputError

_MOST_DRAWS = 1 << 32


def whole_number(name: str, value: object) -> int:
    """The value as an int, NumPy's whole numbers among them; anything else is refused by its name."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidInputError(f"{name} must be a whole number, not {value!r}; write it without a point.") from error


def real_number(name: str, value: object) -> float:
    """The value as a float; anything that is not a real number is refused by its name."""
    if not isinstance(value, numbers.Real):
        raise InvalidInputError(f"{name} must be a number, not {value!r}.")
    return float(value)


def checked_draws(draws: int, first_draw: int = 0, *, name: str = "draws") -> int:
    """The number of draws: at least 1, and all their indices are ones that the noise can count."""
    count, first = whole_number(name, draws), whole_number("first_draw", first_draw)
    if count < 1:
        raise InvalidInputError(f"{name} must be at least 1, not {count}.")
    if first < 0 or first + count > _MOST_DRAWS:
        raise InvalidInputError(
            f"draw indices must lie in 0 .. 2^32 - 1; first_draw = {first} and {name} = {count} leave it."
        )
    return count
