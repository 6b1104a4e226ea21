"""Records in JSON, and YAML that people write: a file that anyone may have written has one meaning or is refused."""

import hashlib
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec
import yaml

from multiguard.errors import InvalidInputError

T = TypeVar("T")


def decode_json(content: bytes | str, record_type: type[T]) -> T:
    """Return the record that the JSON text holds; a text that two readers may take differently raises `ValueError`.

    Refused are bytes that are not UTF-8, duplicate keys, lone surrogates, too deep nesting, and all that `convert`
    refuses; of a `dict[str, Any]`, the type for a file of others, the values are not checked.
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

    So does a text that is not Unicode, such as the name of a file that is not UTF-8, which could not be read back.
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
    """Return a record or a mapping as JSON that also holds its format, its version and the checksum of all the rest."""
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


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' stands twice", key.start_mark)
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def with_seeds(command: str, *, seed: int, noise_seed: int) -> str:
    """The command of a vote or a run with its seeds named, that of the sample of images and that of the noise.

    Any other command stays as it is.

    >>> with_seeds("multiguard vote --data coco --seed 3 --out votes", seed=3, noise_seed=71)
    'multiguard vote --data coco --seed 3 --out votes --noise-seed 71'
    >>> with_seeds("multiguard run digits", seed=0, noise_seed=71)
    'multiguard run digits --set data.seed=0 --set vote.noise_seed=71'
    """
    words = shlex.split(command)
    if words[1:2] == ["vote"]:
        named = {word.partition("=")[0] for word in words}
        for option, number in (("--seed", seed), ("--noise-seed", noise_seed)):
            words += [] if option in named else [option, str(number)]
    elif words[1:2] == ["run"]:
        for change in (f"data.seed={seed}", f"vote.noise_seed={noise_seed}"):
            words += [] if change in words else ["--set", change]
    return shlex.join(words)
