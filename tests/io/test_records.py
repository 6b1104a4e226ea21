"""JSON has one meaning or is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from multiguard.errors import InvalidInputError
from multiguard.io.records import checksum, convert, decode_checked, decode_json, encode_checked, encode_json


@dataclass(frozen=True)
class Part:
    name: str
    size: int = 0

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("size must not be negative")


@dataclass(frozen=True)
class Record:
    count: int
    ratio: float
    flag: bool
    word: Literal["a", "b"]
    pair: tuple[str, int] | None
    parts: tuple[Part, ...]
    named: Mapping[str, Part] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)


RECORD = Record(3, 0.5, True, "a", ("x", 1), (Part("p", 2),), {"q": Part("é")}, {"nested": [1, None]})
PLAIN = json.loads(encode_json(RECORD))


def test_round_trip():
    """A record is read back as it was written."""
    assert decode_json(encode_json(RECORD), Record) == RECORD
    assert decode_json(encode_json(RECORD).decode(), Record) == RECORD
    assert convert({**PLAIN, "ratio": 1, "count": 1 << 70}, Record).count == 1 << 70


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": True}, "count: expected `int`, got `bool`"),
        ({"count": 1.0}, "count: expected `int`, got `float`"),
        ({"count": 10**400}, "count: .* not a finite number"),
        ({"ratio": "0.5"}, "ratio: expected `float`, got `str`"),
        ({"ratio": True}, "ratio: expected `float`, got `bool`"),
        ({"ratio": float("nan")}, "ratio: nan is not a finite number"),
        ({"ratio": float("inf")}, "ratio: inf is not a finite number"),
        ({"ratio": 10**400}, "ratio: number out of range"),
        ({"flag": 1}, "flag: expected `bool`, got `int`"),
        ({"word": "c"}, "word: invalid enum value 'c'"),
        ({"pair": ["x"]}, "pair: expected `array` of length 2, got 1"),
        ({"parts": None}, "parts: expected `array`, got `null`"),
        ({"parts": [{"name": "p", "extra": 1}]}, r"parts\[0\]: unknown key 'extra'"),
        ({"parts": [{"name": "p"}, {}]}, r"parts\[1\]: object missing required field `name`"),
        ({"parts": [{"name": "p", "size": -1}]}, r"parts\[0\]: size must not be negative"),
        ({"named": {"q": {"name": "q", "size": 10**400}}}, r"named\['q'\].size: .* not a finite number"),
        ({"named": {"q": {"name": "q", "extra": 1}}}, r"named\['q'\]: unknown key 'extra'"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_unfit_value(change, message):
    """A value that does not fit its field is refused, and the field is named."""
    with pytest.raises(ValueError, match=message):
        convert({**PLAIN, **change}, Record)


def test_missing_key():
    """A field without a default must be there."""
    with pytest.raises(ValueError, match="object missing required field `count`"):
        convert({name: value for name, value in PLAIN.items() if name != "count"}, Record)
    with pytest.raises(ValueError, match="expected `object`, got `array`"):
        decode_json(b"[]", Record)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 1}}', "duplicate key 'c'"),
        (b'{"a": "\xff"}', "utf-8"),
        (b'{"a": "\xed\xa0\x80"}', "utf-8"),
        (rb'{"a": "\ud800"}', "half of a character"),
        (rb'{"\udc00": 1}', "half of a character"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1', "delimiter"),
        (b"", "Expecting value"),
    ],
)
def test_ambiguous_text(content, message):
    """A text that two readers may take differently is refused, whatever it is read as."""
    with pytest.raises(ValueError, match=message):
        decode_json(content, dict[str, Any])


def test_foreign_text():
    """A file of others is read without checks of its values; whole characters may be escaped."""
    assert decode_json(rb'{"a": [1, NaN], "b": "\ud83d\ude00"}', dict[str, Any])["b"] == "\N{GRINNING FACE}"


def test_not_finite():
    """What could not be read back by everybody is not written."""
    with pytest.raises(ValueError, match="JSON"):
        encode_json({"a": float("nan")})


def test_checksum():
    """The checksum depends on every value, but not on the order of keys nor on the checksum itself."""
    assert checksum(RECORD) == checksum(dict(reversed(PLAIN.items()))) == checksum({**PLAIN, "sha256": "0"})
    assert checksum(RECORD) != checksum({**PLAIN, "count": 4})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stored: stored.update(count=4), "edited after it was written"),
        (lambda stored: stored.pop("sha256"), "checksum is missing"),
        (lambda stored: stored.update(version=2), "format 'f', version 2; this multiguard reads 'f', version 1"),
        (lambda stored: stored.update(format="g"), "format 'g'"),
    ],
)
def test_checked_record(change, message):
    """A record with a checksum is read back; an edit, another format or version is refused."""
    content = encode_checked(RECORD, format="f", version=1)
    assert decode_checked(content, format="f", version=1) == PLAIN
    stored = json.loads(content)
    change(stored)
    with pytest.raises(ValueError, match=message):
        decode_checked(json.dumps(stored).encode(), format="f", version=1)


def test_half_characters_not_written():
    """A name that is not UTF-8 is refused when it is written, since no reader would take it."""
    with pytest.raises(InvalidInputError, match="a name is not UTF-8"):
        encode_checked({"name": "caf\udce9"}, format="example", version=1)
