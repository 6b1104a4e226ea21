"""The fields of recipes and commands: what each means, and which values it takes."""

import re
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from multiguard.errors import InvalidInputError

_LARGEST_WHOLE = 2**63 - 1  # what the arrays behind a config can hold
_LARGEST = 1e9  # sums of squares of it fit a float32


@dataclass(frozen=True)
class Help:
    """What a field means, and which values it takes: an annotation of the field."""

    text: str  # ends in the default in [brackets] where that is not the field's own
    name: str | None = None  # of the option on the command line, if not the field's
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    forms: tuple[str, ...] = ()  # of a text, as people read them; N stands for a number

    def allows(self, value: float) -> bool:
        """Whether the number is in the range."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def range_text(self) -> str:
        """The range in words."""
        if self.least is not None:
            below = "" if self.below is None else f", and below {self.below}"
            return f"{self.least} or more{below}" if self.most is None else f"{self.least} to {self.most:,}"
        return (
            f"a number above {self.above}" if self.below is None else f"strictly between {self.above} and {self.below}"
        )


def field_help(config: Any) -> dict[str, Help]:
    """The help of each field of a config."""
    hints = get_type_hints(config, include_extras=True)
    return {name: one for name, hint in hints.items() for one in get_args(hint)[1:] if isinstance(one, Help)}


def check_fields(config: Any) -> None:
    """Raises `InvalidInputError` unless every field of the config has a value that it takes."""
    for name, declared in field_help(type(config)).items():
        check_value(name, getattr(config, name), declared)


def check_value(name: str, value: Any, declared: Help) -> None:
    """Raises `InvalidInputError` unless the number, the text, or each number of a tuple, is one that the field takes.

    No field takes a number that is not finite, or too large to count with.
    """
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, int | float) and not isinstance(one, bool):
            expected = _expected(one) if declared.allows(one) else declared.range_text
            if expected is not None:
                raise InvalidInputError(f"{name} is {_shown(one)}; expected {expected}")
    if isinstance(value, str) and declared.forms and not any(map(_matches(value), declared.forms)):
        raise InvalidInputError(f"{name} is {value!r}; expected one of {', '.join(declared.forms)}")


def _expected(number: float) -> str | None:
    """What was expected instead of this number; None if it is finite and small enough to count with."""
    if isinstance(number, int):
        return None if abs(number) <= _LARGEST_WHOLE else "a smaller one"
    return None if abs(number) <= _LARGEST else f"a finite number, at most {_LARGEST:g}"


def _matches(text: str) -> Any:
    return lambda form: re.fullmatch(re.escape(form).replace("N", r"\d{1,4}"), text)


def _shown(number: float) -> str:
    """The number, however many digits it has."""
    is_long = isinstance(number, int) and abs(number) > _LARGEST_WHOLE
    return "a number of more than 18 digits" if is_long else repr(number)
