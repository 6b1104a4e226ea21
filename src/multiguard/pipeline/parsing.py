"""From YAML to a recipe and back: every key is known, every value of its type, or one line says where not."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name
from multiguard.pipeline.recipe import ModelPart, RunRecipe

RECIPE_FILE = "recipe.yaml"  # in a run folder, with every value that was left out
T = TypeVar("T")
_UNIONS = (Union, UnionType)  # X | None is the second, unless X is a Literal
_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    NoneType: "null",
}


class Typed(str):
    """A value as typed on the command line: text where text is expected, YAML elsewhere."""


class _Loader(yaml.SafeLoader):
    """Plain YAML that refuses a repeated key and references, and reads 1e-3 as the number that it is.

    A few lines of references to references can stand for more values than any memory holds; a recipe needs none.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, which is none that stands elsewhere."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "a recipe has no references (*name); write it out", None)
        return super().compose_node(parent, index)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' stands twice", key.start_mark)
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    found: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_recipe(path: Path, changes: Sequence[str] = ()) -> RunRecipe:
    """The recipe in a file, with changes such as "certify.k=5" over it; a mistake raises `InvalidInputError`."""
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; a recipe is a file in YAML")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: no recipe can be read there ({error})") from error
    return parse_recipe(text, path.name, changes)


def parse_recipe(text: str, name: str, changes: Sequence[str] = ()) -> RunRecipe:
    """The recipe that a YAML text describes.

    Args:
        text: The YAML.
        name: What to call the text in a message.
        changes: Each a dotted key, an equals sign and a value, put in place of what the text says.
    """
    found = _load(text, name)
    if not isinstance(found, dict):
        raise InvalidInputError(f"{name}: expected the keys of a recipe, such as data: and sigma:, got {_said(found)}")
    for change in changes:
        _put(found, change)
    try:
        return _Parser(name).section(RunRecipe, found, "")
    except InvalidInputError as error:
        told = str(error)
        raise InvalidInputError(told if told.startswith(f"{name}: ") else f"{name}: {told}") from error


def recipe_text(recipe: RunRecipe) -> str:
    """The recipe as YAML that parses to an equal one, every value written out."""
    return str(yaml.safe_dump(_plain(recipe), sort_keys=False, allow_unicode=True))


def _load(text: str, name: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise InvalidInputError(f"{name}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{name}: no YAML ({' '.join(str(error).split())})") from error
    except RecursionError:
        raise InvalidInputError(f"{name}: no recipe is nested so deeply") from None


def _put(found: dict[Any, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals or not key:
        raise InvalidInputError(f"--set {change}: expected KEY=VALUE, such as certify.k=5")
    *sections, last = key.strip().split(".")
    for section in sections:
        inner = found.get(section)
        found[section] = inner = dict(inner) if isinstance(inner, dict) else {}
        found = inner
    found[last] = Typed(value)


class _Parser:
    """Turns plain mappings into the dataclasses of a recipe, by their annotations."""

    def __init__(self, name: str) -> None:
        self._name = name

    def section(self, kind: type[T], value: Any, place: str) -> T:
        """A dataclass from a mapping whose keys are its fields, none unknown and none that is needed missing."""
        if not isinstance(value, Mapping):
            raise self._wrong(place, value, f"keys such as {fields(kind)[0].name}:")  # type: ignore[arg-type]
        hints = get_type_hints(kind)
        for key in value:
            if key not in hints:
                raise InvalidInputError(
                    f"{self._name}: {unknown_name('key', _dotted(place, key), _places(kind, place))}"
                )
        for known in fields(kind):  # type: ignore[arg-type]
            if known.name not in value and _needed(known):
                raise InvalidInputError(f"{self._name}: {_dotted(place, known.name)} is missing; every recipe needs it")
        values = {key: self._value(hints[key], given, _dotted(place, key)) for key, given in value.items()}
        try:
            return kind(**values)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self._name}: {place}: {error}" if place else str(error)) from error

    def _value(self, kind: Any, value: Any, place: str) -> Any:
        if isinstance(value, Typed):
            value = _as_typed(kind, value)
        if get_origin(kind) not in _UNIONS:
            return self._plain_value(kind, value, place)
        if value is None and NoneType in get_args(kind):
            return None
        first, *words = [one for one in get_args(kind) if one is not NoneType]
        return self._or_word(first, words, value, place) if words else self._plain_value(first, value, place)

    def _or_word(self, kind: Any, words: Sequence[Any], value: Any, place: str) -> Any:
        """A value of the first kind, or one of the words that the others name."""
        known = [word for literal in words for word in get_args(literal)]
        if value in known:
            return value
        if not _CHECKS[kind](value):
            raise self._wrong(place, value, f"{_NAMES[kind]} or {' or '.join(known)}")
        return kind(value)

    def _plain_value(self, kind: Any, value: Any, place: str) -> Any:
        if get_origin(kind) is Literal:
            return self._choice(get_args(kind), value, place)
        if get_origin(kind) is tuple:
            return self._several(get_args(kind)[0], value, place)
        if kind is ModelPart and isinstance(value, str):
            return ModelPart(value)
        if is_dataclass(kind):
            return self.section(kind, value, place)  # type: ignore[arg-type]
        if not _CHECKS[kind](value):
            raise self._wrong(place, value, _NAMES[kind])
        return kind(value)

    def _choice(self, known: Sequence[str], value: Any, place: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise InvalidInputError(f"{self._name}: {place}: {unknown_name('value', str(value), known)}")
        return value

    def _several(self, kind: Any, value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            some = "joint, paper" if get_args(kind) == get_args(Method) else "1, 2"
            raise self._wrong(place, value, f"a list, such as [{some}]")
        return tuple(self._value(kind, one, f"{place}[{number}]") for number, one in enumerate(value))

    def _wrong(self, place: str, value: Any, expected: str) -> InvalidInputError:
        return InvalidInputError(f"{self._name}: {place or 'the recipe'} is {_said(value)}; expected {expected}")


_CHECKS: Mapping[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    Path: lambda value: isinstance(value, str) and value != "",
    bool: lambda value: isinstance(value, bool),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST,
    float: lambda value: _is_number(value) and abs(value) < math.inf,
}
_LARGEST = 2**63 - 1  # what the arrays behind a recipe can count with


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    )


def _as_typed(kind: Any, value: Typed) -> Any:
    """What was typed, as the field takes it: text as it stands, anything else as YAML."""
    kinds = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    if value == "null" and NoneType in kinds:
        return None
    if {str, Path, ModelPart} & {one for one in kinds if isinstance(one, type)}:
        return str(value)
    return _load(value, "--set")


def _needed(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _places(kind: Any, place: str) -> list[str]:
    return [_dotted(place, field.name) for field in fields(kind)]


def _dotted(place: str, key: Any) -> str:
    return f"{place}.{key}" if place else str(key)


def _said(value: Any) -> str:
    return {dict: "a section of keys", list: "a list", NoneType: "nothing"}.get(type(value), repr(value))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
