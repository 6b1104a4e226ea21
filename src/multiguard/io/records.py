"""Typed JSON records from files that anyone may have written: a file has one meaning or is refused."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_MAX_NUMBER = sys.float_info.max  # a seed may be any integer, but none that a float cannot hold


def decode_json(content: bytes | str, record_type: type[T]) -> T:
    """Return the record that the JSON text holds; a text that two readers may take differently raises `ValueError`.

    Refused are bytes that are not UTF-8, duplicate keys, lone surrogates, too deep nesting, and all that `convert`
    refuses.

    Args:
        content: The JSON text.
        record_type: A dataclass, or `dict[str, Any]` for a file of somebody else's, whose values are not checked.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Size:
        ...     width: int
        ...     height: int = 1
        >>> decode_json(b'{"width": 3}', Size)
        Size(width=3, height=1)
        >>> decode_json(b'{"width": 3, "width": 4}', Size)
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

    Args:
        value: Mappings, sequences, strings, numbers, booleans and None.
        record_type: A dataclass, or any other type that msgspec knows.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Noise:
        ...     sigma: float
        >>> convert({"sigma": 0.5}, Noise)
        Noise(sigma=0.5)
        >>> convert({"sigma": "0.5"}, Noise)
        Traceback (most recent call last):
        ValueError: sigma: expected `float`, got `str`
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

    Example:
        >>> print(encode_json({"sigma": 0.5}).decode())
        {
         "sigma": 0.5
        }
    """
    text = json.dumps(value, default=_as_mapping, allow_nan=False)
    return msgspec.json.format(text.encode(), indent=1)


def checksum(value: Any) -> str:
    """Return the sha256 of a record or a mapping, in any order of its keys, without its own field `sha256`.

    Example:
        >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1, "sha256": "..."})
        True
    """
    named = value if isinstance(value, Mapping) else _as_mapping(value)
    rest = {name: inner for name, inner in named.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=_as_mapping).encode()).hexdigest()


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
    named = value if isinstance(value, Mapping) else _as_mapping(value)
    stored = {"format": format, "version": version, **named}
    return encode_json({**stored, "sha256": checksum(stored)})


def decode_checked(content: bytes, *, format: str, version: int) -> dict[str, Any]:  # noqa: A002
    """Return what `encode_checked` was given; another format, another version or an edit raises `ValueError`."""
    stored = decode_json(content, dict[str, Any])
    if not {"format", "version", "sha256"} <= stored.keys():
        raise ValueError("its format, its version or its checksum is missing")
    if (stored["format"], stored["version"]) != (format, version):
        raise ValueError(
            f"it has format {stored['format']!r}, version {stored['version']!r}; this multiguard reads {format!r}, "
            f"version {version}"
        )
    if stored["sha256"] != checksum(stored):
        raise ValueError("it was edited after it was written (its checksum does not match)")
    return {name: value for name, value in stored.items() if name not in ("format", "version", "sha256")}


def _plain(message: str) -> str:
    """A message of msgspec, the field first."""
    text, _, path = message.partition(" - at ")
    path = path.replace("`", "").replace("$.", "").replace("$", "the record")
    return ": ".join(filter(None, (path, text[:1].lower() + text[1:])))


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in names if names.count(name) > 1)!r}")
    return mapping


def _as_mapping(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _check(value: Any, record: Any, path: str) -> None:
    """Refuse what msgspec lets pass: unknown keys of dataclasses, numbers that are not finite or far too large."""
    if is_dataclass(record):
        unknown = value.keys() - {field.name for field in fields(record)}
        if unknown:
            raise ValueError(": ".join(filter(None, (path, f"unknown key {min(unknown)!r}"))))
    elif isinstance(record, int | float) and not abs(record) <= _MAX_NUMBER:
        raise ValueError(f"{path}: {str(record)[:20]} is not a finite number that a float can hold")
    for inner, part, name in _parts(value, record):
        _check(inner, part, f"{path}{name}".lstrip("."))


def _parts(value: Any, record: Any) -> Iterator[tuple[Any, Any, str]]:
    """The parts to check: every field, every entry of a sequence but strings, and the records in a mapping."""
    if is_dataclass(record):
        yield from ((inner, getattr(record, name), f".{name}") for name, inner in value.items())
    elif isinstance(record, dict):
        yield from ((value[name], part, f"[{name!r}]") for name, part in record.items() if is_dataclass(part))
    elif isinstance(record, list | tuple):
        parts = enumerate(record)
        yield from ((value[index], part, f"[{index}]") for index, part in parts if not isinstance(part, str))
