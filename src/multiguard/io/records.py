"""Typed JSON records from files that anyone may have written: a file has one meaning or is refused."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec

from multiguard.errors import InvalidInputError

T = TypeVar("T")


def decode_json(content: bytes | str, record_type: type[T]) -> T:
    """Return the record that the JSON text holds; a text that two readers may take differently raises `ValueError`.

    Refused are bytes that are not UTF-8, duplicate keys, lone surrogates, too deep nesting, and all that `convert`
    refuses; of a `dict[str, Any]`, the type for a file of somebody else's, the values are not checked.

    Example:
        >>> decode_json(b'{"width": 3}', dict[str, int])
        {'width': 3}
        >>> decode_json(b'{"width": 3, "width": 4}', dict[str, int])
        Traceback (most recent call last):
        ValueError: duplicate key 'width'
    """
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a string holds half of a character (a lone surrogate)") from None
    return convert(value, record_type)


def convert(value: Any, record_type: type[T]) -> T:
    """Return plain values (of JSON or YAML) as a record; a value that does not fit its field raises `ValueError`.

    Refused are unknown and missing keys, values of another type (a boolean is not an integer), and, in fields of a
    record, numbers that are not finite or too large for a float. A field of type `Any` takes everything.

    Example:
        >>> from multiguard.io.ranks import Rank  # a dataclass
        >>> convert({"number": 1, "count": 4}, Rank)
        Rank(number=1, count=4, local=0, restarts=None)
        >>> convert({"number": "1"}, Rank)
        Traceback (most recent call last):
        ValueError: number: expected `int`, got `str`
    """
    try:
        record = msgspec.convert(value, record_type)
        _check(value, record, "")
    except msgspec.ValidationError as error:
        raise ValueError(_plain(str(error))) from error
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return record


def encode_json(value: Any) -> bytes:
    """Return a record or plain values as indented JSON; a number that is not finite raises `ValueError`.

    So does a text that is not Unicode, such as the name of a file that is not UTF-8: nobody could read it back.
    """
    try:
        return msgspec.json.format(json.dumps(value, default=_as_plain, allow_nan=False).encode(), indent=1)
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"a name is not UTF-8, and cannot be stored ({error}); rename it") from error


def checksum(value: Any) -> str:
    """Return the sha256 of a record or a mapping, in any order of its keys, without its own field `sha256`."""
    rest = {name: inner for name, inner in _as_mapping(value).items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=_as_plain).encode()).hexdigest()


def encode_checked(value: Any, *, format: str, version: int) -> bytes:  # noqa: A002 (the key in the file)
    """Return a record or a mapping as JSON that also holds its format, its version and the checksum of all the rest.

    Example:
        >>> content = encode_checked({"draws": 100}, format="example", version=1)
        >>> decode_checked(content, format="example", version=1)
        {'draws': 100}
        >>> decode_checked(content.replace(b"100", b"900"), format="example", version=1)
        Traceback (most recent call last):
        ValueError: it was edited after it was written (its checksum does not match)
    """
    stored = {"format": format, "version": version, **_as_mapping(value)}
    return encode_json({**stored, "sha256": checksum(stored)})


def decode_checked(content: bytes, *, format: str, version: int) -> dict[str, Any]:  # noqa: A002
    """Return what `encode_checked` was given; another format, another version or an edit raises `ValueError`."""
    stored = decode_json(content, dict[str, Any])
    if not {"format", "version", "sha256"} <= stored.keys():
        raise ValueError("its format, its version or its checksum is missing")
    if (stored["format"], stored["version"]) != (format, version):
        given = f"it has format {stored['format']!r}, version {stored['version']!r}"
        raise ValueError(f"{given}; this multiguard reads {format!r}, version {version}")
    if stored["sha256"] != checksum(stored):
        raise ValueError("it was edited after it was written (its checksum does not match)")
    return {name: value for name, value in stored.items() if name not in ("format", "version", "sha256")}


def _plain(message: str) -> str:
    """A message of msgspec, the field first."""
    text, _, path = message.partition(" - at ")
    path = path.replace("`", "").replace("$.", "").replace("$", "the record")
    return ": ".join(filter(None, (path, text[:1].lower() + text[1:])))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"duplicate key {next(name for name, count in counts.items() if count > 1)!r}")
    return mapping


def _as_plain(value: Any) -> Mapping[str, Any] | list[Any] | str:
    """A record as a mapping, or as its text where it has a text form of its own; a sequence as a list."""
    if isinstance(value, Sequence):
        return list(value)
    has_text = is_dataclass(value) and type(value).__str__ is not object.__str__
    return str(value) if has_text else _as_mapping(value)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {one.name: getattr(value, one.name) for one in fields(value)}


def _check(value: Any, record: Any, path: str) -> None:
    """Refuse what msgspec lets pass: unknown keys of dataclasses, numbers that are not finite or far too large."""
    if isinstance(value, str):  # of a record that has a text form, too
        return
    if is_dataclass(record):
        if unknown := value.keys() - {field.name for field in fields(record)}:
            raise ValueError(": ".join(filter(None, (path, f"unknown key {min(unknown)!r}"))))
        for name, inner in value.items():
            _check(inner, getattr(record, name), f"{path}.{name}".lstrip("."))
    elif isinstance(record, dict):  # only records in a mapping: its other values are not ours
        for name in (name for name, part in record.items() if is_dataclass(part)):
            _check(value[name], record[name], f"{path}[{name!r}]")
    elif isinstance(record, list | tuple):
        for index, part in enumerate(record):
            _check(value[index], part, f"{path}[{index}]")
    elif isinstance(record, int | float) and not abs(record) <= sys.float_info.max:
        raise ValueError(f"{path}: {str(record)[:20]} is not a finite number that a float can hold")
