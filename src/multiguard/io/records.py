"""Records in JSON, YAML that people write, and columns of Arrow tables.

A file that anyone may have written has one meaning or is refused.
"""

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import msgspec
import numpy as np
import yaml
from numpy.typing import DTypeLike, NDArray

from multiguard.errors import InvalidInputError

T = TypeVar("T")
Row = TypeVar("Row")
_ROWS_AT_A_TIME = 1 << 15  # that are held as objects
_SHOWN = 4  # rows, in a repr


def decode_json(content: bytes | str, record_type: type[T]) -> T:
    """The record that the JSON text holds; a text that two readers may take differently raises `ValueError`.

    So do all values that `convert` refuses; those of a `dict[str, Any]`, for files of others, are not checked.
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
    """Plain values (of JSON or YAML) as a record; a value that does not fit its field raises `ValueError`.

    So do unknown and missing keys, and numbers that are not finite or too large for a float in fields of a record.
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
    """A record or plain values as indented JSON; a number that is not finite raises `ValueError`.

    So does a text that is not Unicode, such as the name of a file that is not UTF-8, which could not be read back.
    """
    try:
        return msgspec.json.format(json.dumps(value, default=_as_plain, allow_nan=False).encode(), indent=1)
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"a name is not UTF-8, and cannot be stored ({error}); rename it") from error


def checksum(value: Any) -> str:
    """The sha256 of a record or a mapping, in any order of its keys, without its own field `sha256`."""
    rest = {name: inner for name, inner in _as_mapping(value).items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=_as_plain).encode()).hexdigest()


def encode_checked(value: Any, *, format: str, version: int) -> bytes:  # noqa: A002 (the key in the file)
    """A record or a mapping as JSON that also holds its format, its version and the checksum of all the rest."""
    stored = {"format": format, "version": version, **_as_mapping(value)}
    return encode_json({**stored, "sha256": checksum(stored)})


def decode_checked(content: bytes, *, format: str, version: int) -> dict[str, Any]:  # noqa: A002
    """What `encode_checked` was given; another format, another version or an edit raises `ValueError`."""
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
    return f"{path}{': ' if path else ''}{text[:1].lower()}{text[1:]}"


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


def parse_yaml(text: str, name: str) -> Any:
    """The plain values of a YAML text; anything else, or a repeated key, raises `InvalidInputError` with its name."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise InvalidInputError(f"{name}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{name}: not YAML ({' '.join(str(error).split())})") from error
    except RecursionError:
        raise InvalidInputError(f"{name}: nested too deeply") from None


class _Loader(yaml.SafeLoader):
    """Plain YAML that refuses repeated keys and references, and reads 1e-3 as a number.

    A few lines of references to references can stand for more values than any memory holds, and no file here needs one.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if it is not a reference."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "references (*name) are not read; write it out", None)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping, if no key is there twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key '{key.value}' stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


class Rows(Sequence[Row]):
    """A read-only view of an Arrow array: texts, arrays of floats, or tuples of whole numbers; None where one is null.

    What is known of a million images takes little more than its numbers.

    >>> rows = Rows.of([(3, 1), (), None, (2,)], np.int64)
    >>> rows[0], rows[2], len(rows), rows == ((3, 1), (), None, (2,)), rows.lengths.tolist()
    ((3, 1), None, 4, True, [2, 0, 0, 1])
    >>> Rows.of(["cat", None, "café"], str)
    Rows('cat', None, 'café')
    """

    def __init__(self, array: Any) -> None:
        self.array = array  # a pyarrow Array of strings, or of lists of numbers
        self._are_lists = hasattr(array, "flatten")

    @staticmethod
    def of(rows: Iterable[Any], dtype: DTypeLike) -> "Rows[Any]":
        """These rows: texts if the dtype is `str`, otherwise lists of such numbers."""
        import pyarrow as pa

        if isinstance(rows, Rows):
            return rows
        kind: Any = pa.string() if dtype is str else pa.large_list(pa.from_numpy_dtype(np.dtype(dtype)))
        portions, left = list[Any](), iter(rows)
        while portion := list(islice(left, _ROWS_AT_A_TIME)):
            portions.append(pa.array(portion, kind))
        return Rows(pa.chunked_array(portions, kind).combine_chunks())

    @cached_property
    def values(self) -> NDArray[Any]:
        """The numbers of all rows, one row after the other."""
        return np.asarray(self.array.flatten())

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(rows + 1,) where each row begins and ends in `values`."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(rows,) the length of each row, 0 for one that is None."""
        return np.asarray(self.array.value_lengths().fill_null(0), np.int64)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(rows,) whether each row is None."""
        return np.asarray(self.array.is_null())

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> "Rows[Row]":
        """The rows at these positions, in their order."""
        return Rows(self.array.take(np.asarray(positions, np.int64)))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        return self.take(places) if isinstance(places, range) else self._read(places)

    def __iter__(self) -> Iterator[Row]:
        if self._are_lists:
            yield from map(self._read, range(len(self)))
            return
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            yield from self.array.slice(start, _ROWS_AT_A_TIME).to_pylist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows) and self.array.type == other.array.type:
            return bool(self.array.equals(other.array))
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        rows: Iterable[tuple[Any, Any]] = zip(self, other, strict=True)
        return all(np.array_equal(*pair) for pair in rows)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [*map(repr, islice(self, _SHOWN)), *(["..."] if len(self) > _SHOWN else [])]
        return f"Rows({', '.join(shown)})"

    def _read(self, position: int) -> Any:
        found = self.array[position]
        if not self._are_lists or not found.is_valid:
            return found.as_py()
        row = self.values[self.offsets[position] : self.offsets[position + 1]]
        return row if row.dtype.kind == "f" else tuple(row.tolist())
