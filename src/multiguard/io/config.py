"""Configs: a frozen struct that is the options of a command, a section of a recipe and a record in a file.

Each field is declared once, with its type, range, default and help. A config cannot hold a value that its field does
not take, whoever made it.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import fields, force_setattr, replace

from multiguard.errors import InvalidInputError
from multiguard.io.names import check_path, is_unicode, unknown_name

C = TypeVar("C", bound="Config")
_LARGEST_WHOLE = 2**63 - 1  # what the arrays behind a config can hold
_LARGEST = 1e9  # sums of squares of it fit a float32
_SHOWN = 60  # characters of a value

MAX_SIDE = 8192  # pixels, of an image
Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Draws = Annotated[int, Meta(ge=1, le=100_000_000)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]

_RANGES = {
    "ge": " of {ge:g} or more",
    "gt": " above {gt:g}",
    "ge le": " from {ge:,} to {le:,}",
    "ge lt": " of {ge:g} or more, and below {lt:,}",
    "gt le": " above {gt:g}, at most {le:,}",
    "gt lt": " strictly between {gt:g} and {lt:g}",
}
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


def described(text: str, option: str | None = None) -> Meta:
    """The help of a field, and the name of its option if it differs, "" for none; [brackets] say its own default."""
    return Meta(description=text, extra={"option": option})


class Config(msgspec.Struct, frozen=True):
    """A config whose fields all have values that they take; a mistake raises `InvalidInputError`.

    The message begins with the name of the field.

    >>> class Sampling(Config, frozen=True):
    ...     draws: Annotated[Count | Literal["adaptive"], described("Draws per image.")] = 1000
    >>> Sampling(draws=50)
    Sampling(draws=50)
    >>> Sampling(draws=0)
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: draws is 0; expected a whole number of 1 or more, or adaptive
    """

    def __post_init__(self) -> None:
        for name, kind in field_types(type(self)).items():
            force_setattr(self, name, checked(name, getattr(self, name), kind))

    def replace(self, **changes: Any) -> Self:
        """The same config with other values for some fields."""
        return replace(self, **changes)


def from_tree(kind: type[C], tree: Any, name: str = "") -> C:
    """The config that plain values (of YAML or JSON) describe; a mistake raises `InvalidInputError` that names the key.

    A field that is a config has a mapping of its own; `name` is the dotted name of the section, which begins messages.
    """
    if not isinstance(tree, Mapping):
        raise InvalidInputError(
            f"{name or 'the text'} is {_shown(tree)}; expected keys such as {fields(kind)[0].name}:"
        )
    kinds, values = field_types(kind), dict[str, Any]()
    for key, value in tree.items():
        dotted = f"{name}.{key}" if name else str(key)
        if key not in kinds:
            known = [f"{name}.{each}" if name else each for each in kinds]
            raise InvalidInputError(unknown_name("key", dotted, known))
        section = _section(kinds[key])
        values[key] = value if section is None or value is None else from_tree(section, value, dotted)
    for each in fields(kind):
        if each.required and each.name not in values:
            raise InvalidInputError(f"{name}{'.' if name else ''}{each.name} is missing")
    try:
        return kind(**values)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}.{error}" if name else str(error)) from error


def to_tree(config: Config) -> dict[str, Any]:
    """The plain values of a config, as `from_tree` takes them; a path is its text."""
    tree: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    return tree


@cache
def field_types(kind: type[Config]) -> dict[str, Any]:
    """The type of each field, with its annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: hints[one.name] for one in fields(kind)}


def described_as(kind: Any) -> tuple[str, str | None]:
    """The help of a field of this type, and the name of its option if that differs from the field's."""
    for meta in _metas(kind):
        if meta.description is not None:
            return meta.description, (meta.extra or {}).get("option")
    return "", None


def members(kind: Any) -> list[Any]:
    """The types that a value of this type can have, ranges included; None is left out."""
    if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) in (Union, UnionType):
        kind = get_args(kind)[0]
    return [one for one in get_args(kind) if one is not NoneType] if get_origin(kind) in (Union, UnionType) else [kind]


def plain_type(kind: Any) -> Any:
    """The type without its annotations."""
    return plain_type(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def words(kind: Any) -> list[str]:
    """The words that a value of this type can be."""
    kinds = map(plain_type, members(kind))
    return [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]


def checked(name: str, value: Any, kind: Any) -> Any:
    """The value as the type has it, a list as a tuple; one that does not fit raises `InvalidInputError`."""
    first = plain_type(members(kind)[0])
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | Path) and not is_unicode(str(value)):
        raise InvalidInputError(f"{name} holds half of a character (a lone surrogate); rename it")
    if get_origin(first) is tuple and isinstance(value, list | tuple):
        inner = get_args(first)[0]
        return tuple(checked(name, one, inner) for one in value)
    try:
        if isinstance(value, set):
            raise msgspec.ValidationError
        found = msgspec.convert(value, kind, dec_hook=_path)
    except msgspec.ValidationError:
        if isinstance(value, str) and all(get_origin(plain_type(one)) is Literal for one in members(kind)):
            raise InvalidInputError(f"{name}: {unknown_name('value', value, words(kind))}") from None
        raise InvalidInputError(f"{name} is {_shown(value)}; expected {expected(kind)}") from None
    if isinstance(found, Path):
        check_path(name, found)
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) > _LARGEST_WHOLE:
        raise InvalidInputError(f"{name} is {_shown(found)}; expected a smaller one")
    if isinstance(found, float) and not (math.isfinite(found) and abs(found) <= _LARGEST):
        raise InvalidInputError(f"{name} is {found}; expected a finite number, at most {_LARGEST:g}")
    return found


def expected(kind: Any) -> str:
    """What a field of this type takes, in words.

    >>> expected(int | Literal["adaptive"])
    'a whole number, or adaptive'
    >>> expected(Annotated[float, Meta(gt=0, lt=1)] | None)
    'a number strictly between 0 and 1'
    """
    return ", or ".join(_expected(one) for one in members(kind))


def _expected(kind: Any) -> str:
    plain = plain_type(kind)
    if get_origin(plain) is Literal:
        return " or ".join(map(str, get_args(plain)))
    if get_origin(plain) is tuple:
        inner = get_args(plain)[0]
        example = {float: "[0.5, 1]", int: "[1, 2]"}.get(plain_type(inner), "[joint, paper]")
        return f"a list, such as {example}"
    if (section := _section(kind)) is not None:
        return f"keys such as {fields(section)[0].name}:"
    titles = [meta.title for meta in _metas(kind) if meta.title is not None]
    return titles[0] if titles else f"{_WORDS.get(plain, 'a value')}{_range(kind)}"


def _metas(kind: Any) -> list[Meta]:
    """The annotations of a type and of the type that it annotates."""
    if get_origin(kind) is not Annotated:
        return []
    inner, *metas = get_args(kind)
    return [*_metas(inner), *(one for one in metas if isinstance(one, Meta))]


def _range(kind: Any) -> str:
    """The range of a number in words."""
    names = ("ge", "gt", "le", "lt")
    limits = {name: x for name in names for meta in _metas(kind) if (x := getattr(meta, name)) is not None}
    return _RANGES.get(" ".join(limits), "").format(**limits)


def _section(kind: Any) -> type[Config] | None:
    """The config among the types of a field."""
    for one in map(plain_type, members(kind)):
        if isinstance(one, type) and issubclass(one, Config):
            return one
    return None


def _path(kind: type, value: Any) -> Any:
    if isinstance(value, Path):
        return value
    if kind is not Path or not isinstance(value, str) or not value:
        raise ValueError("not a path")
    return Path(value)


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_WHOLE:
        return "a number of too many digits"
    kinds = {set: "a set", dict: "a section of keys", list: f"the list {value!r}", NoneType: "nothing"}
    text = kinds.get(type(value), repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
