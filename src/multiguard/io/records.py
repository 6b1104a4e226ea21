"""JSON from files that anyone may have written: one meaning or none."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(content: bytes | str) -> Any:
    """The value that the text stands for; a text that two readers may take differently raises `ValueError`.

    So do bytes that are no UTF-8, a key that stands twice in one object, half of a character (a lone surrogate), which
    no file or page can hold, and nesting too deep to be read.
    """
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        found = json.loads(text, object_pairs_hook=_each_once)
        if _HALF_A_CHARACTER.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text in it holds half of a character") from None
    return found


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice")
        found[key] = value
    return found


def as_record(kind: type[T], stored: Any) -> T:
    """The dataclass that these named values describe, each of the type of its field; anything else raises `ValueError`.

    Lists become tuples where tuples belong. Numbers are finite.

    Args:
        kind: A dataclass whose fields are texts, numbers, truth values, lists, mappings, words and such dataclasses.
        stored: What `parse_json` found.
    """
    if not isinstance(stored, dict):
        raise ValueError(f"{_said(stored)} where named values belong")
    hints, known = get_type_hints(kind), fields(kind)  # type: ignore[arg-type]
    unknown = [name for name in stored if name not in {field.name for field in known}]
    missing = [field.name for field in known if field.name not in stored and _needed(field)]
    if unknown or missing:
        raise ValueError(f"{unknown[0]!r} is not known" if unknown else f"{missing[0]!r} is missing")
    return kind(**{name: _value(hints[name], value, name) for name, value in stored.items()})


def _value(kind: Any, value: Any, place: str) -> Any:
    """The value, if it is of this type."""
    if get_origin(kind) in _UNIONS:
        return _one_of(get_args(kind), value, place)
    if is_dataclass(kind):
        return as_record(kind, value)  # type: ignore[arg-type]
    if get_origin(kind) in (tuple, list, Sequence):
        several = _several(get_args(kind), value, place)
        return list(several) if get_origin(kind) is list else several
    if get_origin(kind) in (dict, Mapping):
        return {name: _value(get_args(kind)[1], one, place) for name, one in _named(value, place).items()}
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ValueError(f"{place} must be one of {', '.join(map(str, get_args(kind)))}, not {_said(value)}")
    if kind is Any or get_origin(kind) is Literal or _PLAIN[kind](value):
        return value
    raise ValueError(f"{place} is {_said(value)}")


def _one_of(kinds: Iterable[Any], value: Any, place: str) -> Any:
    for kind in kinds:
        try:
            return _value(kind, value, place)
        except ValueError:
            continue
    raise ValueError(f"{place} is {_said(value)}")


def _several(kinds: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    """The values of a list: as many as there are types, or any number of one type."""
    if not isinstance(value, list):
        raise ValueError(f"{place} is {_said(value)}, no list")
    each = kinds if len(kinds) > 1 and kinds[1] is not Ellipsis else (kinds[0],) * len(value)
    if len(each) != len(value):
        raise ValueError(f"{place} holds {len(value)} values, not {len(each)}")
    return tuple(_value(kind, one, place) for kind, one in zip(each, value, strict=True))


def _named(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is {_said(value)}, no set of named values")
    return value


def _needed(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _said(value: Any) -> str:
    return {dict: "a set of named values", list: "a list", NoneType: "nothing"}.get(type(value), repr(value)[:60])


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


_LARGEST = 2**1000  # a seed may be any number; none that a float cannot hold
_UNIONS = (Union, UnionType)  # X | None is the second, unless X is a Literal
_PLAIN: Mapping[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: _is_whole,
    float: lambda value: _is_whole(value) or (isinstance(value, float) and math.isfinite(value)),
    NoneType: lambda value: value is None,
}


def own_hash(described: Mapping[str, Any]) -> str:
    """The sha256 of all that a file says but for this, in whatever order it says it."""
    rest = {name: value for name, value in described.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
