"""Recipes as YAML: every key is known and every value has its type, or one line says where not and what to write."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.resources import as_file, files
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.io.files import read_regular
from multiguard.io.names import unknown_name
from multiguard.pipeline.part_fields import Help, check_value
from multiguard.pipeline.parts import ModelPart
from multiguard.pipeline.recipe import RunRecipe

RECIPE_FILE = "recipe.yaml"  # in a run folder, with every value written out
_FOLDER = files("multiguard") / "recipes"
_SUFFIX = ".yaml"
_MOST = 1 << 20  # bytes of a recipe
_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


def recipe_names() -> list[str]:
    """The names of the recipes that come with multiguard.

    >>> "digits" in recipe_names()
    True
    """
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FOLDER.iterdir() if entry.name.endswith(_SUFFIX))


def find_recipe(name: str, changes: Sequence[str] = ()) -> RunRecipe:
    """The recipe of this name that comes with multiguard, or the one in the file of this path, with changes over it.

    >>> find_recipe("digits", ["certify.k=5"]).certify.k
    5

    Args:
        name: One of `recipe_names()`, or a path.
        changes: As `read_recipe` takes them.
    """
    path = Path(name)
    if name in recipe_names():
        with as_file(_FOLDER / f"{name}{_SUFFIX}") as embedded:
            return read_recipe(embedded, changes)
    if path.exists():
        return read_recipe(path, changes)
    if path.suffix or path.name != name:
        raise InvalidInputError(f"{name}: no such recipe file; multiguard comes with {', '.join(recipe_names())}")
    raise InvalidInputError(f"{unknown_name('recipe', name, recipe_names())} (a file is named by its path)")


def read_recipe(path: Path, changes: Sequence[str] = ()) -> RunRecipe:
    r"""The recipe in a file, with changes such as "certify.k=5" over it; a mistake raises `InvalidInputError`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.yaml"
    ...     _ = path.write_text("data: {name: digits}\nsigma: 0.5\ntrain: {}\ncertify: {k: 3, k_prime: 1}")
    ...     read_recipe(path, ["sigma=0.25"]).sigma
    0.25
    """
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; a recipe is a file in YAML")
    try:
        text = read_regular(path, _MOST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: the recipe cannot be read ({error})") from error
    return parse_recipe(text, path.name, changes)


def parse_recipe(text: str, name: str, changes: Sequence[str] = ()) -> RunRecipe:
    r"""The recipe that a YAML text describes; a mistake raises `InvalidInputError`.

    >>> parse_recipe("data: {name: digits}\nsigma: 0.5\ntrain: {}\ncertify: {k: 3, k_prim: 1}", "mine.yaml")
    Traceback (most recent call last):
        ...
    multiguard.errors.InvalidInputError: mine.yaml: unknown key 'certify.k_prim': did you mean 'certify.k_prime'?

    Args:
        text: The YAML.
        name: What to call the text in a message.
        changes: Each a dotted key, an equals sign and a value, in place of what the text says.
    """
    tree = _load_yaml(text, name)
    if not isinstance(tree, dict):
        raise InvalidInputError(f"{name}: expected the keys of a recipe, such as data: and sigma:, got {_shown(tree)}")
    for change in changes:
        _apply_change(tree, change)
    if isinstance(tree.get("model"), str):
        tree["model"] = {"spec": tree["model"]}
    try:
        _check_tree(RunRecipe, tree, "")
        return msgspec.convert(tree, RunRecipe, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{name}: {_mistake(error, tree)}") from error
    except UnicodeEncodeError:
        raise InvalidInputError(f"{name}: a text holds half of a character (a lone surrogate)") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def recipe_text(recipe: RunRecipe) -> str:
    """The recipe as YAML that parses to an equal one, every value written out.

    >>> parse_recipe(recipe_text(find_recipe("digits")), "again") == find_recipe("digits")
    True
    """
    return str(yaml.safe_dump(msgspec.to_builtins(recipe, enc_hook=str), sort_keys=False, allow_unicode=True))


class _Loader(yaml.SafeLoader):
    """Plain YAML that refuses repeated keys and references, and reads 1e-3 as a number.

    A few lines of references to references can stand for more values than any memory holds; a recipe needs none.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if it is not a reference."""
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
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _load_yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise InvalidInputError(f"{name}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{name}: not YAML ({' '.join(str(error).split())})") from error
    except RecursionError:
        raise InvalidInputError(f"{name}: nested too deeply for a recipe") from None


def _apply_change(tree: dict[Any, Any], change: str) -> None:
    """Put a value as typed on the command line into the tree: text where text belongs, YAML elsewhere."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise InvalidInputError(f"--set {change}: expected KEY=VALUE, such as certify.k=5")
    *sections, last = key.strip().split(".")
    kinds = union_members(_kind_at([*sections, last]))
    for section in sections:
        inner = tree.get(section)
        tree[section] = inner = dict(inner) if isinstance(inner, dict) else {}
        tree = inner
    is_text = bool({str, Path, ModelPart} & set(kinds)) and not (text == "null" and NoneType in kinds)
    tree[last] = text if is_text else _load_yaml(text, "--set")


def _check_tree(kind: Any, value: Any, key: str) -> None:
    """Refuse unknown keys, numbers that are not finite or too large to count with, and YAML's own sets."""
    section = next((one for one in union_members(kind) if is_dataclass(one)), None)
    if isinstance(value, str):
        value.encode()  # raises for half of a character, which no file can hold
    elif section is not None and isinstance(value, Mapping):
        known = get_type_hints(section)
        for name, inner in value.items():
            if name not in known:
                raise InvalidInputError(unknown_name("key", _dotted(key, name), [_dotted(key, one) for one in known]))
            _check_tree(known[name], inner, _dotted(key, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            _check_tree(None, one, f"{key}[{number}]")
    elif isinstance(value, set):
        raise InvalidInputError(f"{key} is a set; expected {expected_text(kind) if kind else 'a number'}")
    elif isinstance(value, int | float):
        check_value(key, value, Help(""))


def _decode_path(kind: type, value: Any) -> Path:
    if kind is not Path or not isinstance(value, str) or not value:
        raise ValueError("not a path")
    return Path(value)


def _mistake(error: msgspec.ValidationError, tree: Any) -> str:
    """What is wrong with the recipe: the key, the value, and what was expected."""
    text, _, where = str(error).partition(" - at `$")
    parts = [name or int(number) for name, number in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", where)]
    key = where.rstrip("`").removeprefix(".")
    if isinstance(error.__cause__, InvalidInputError):
        return f"{key}: {text}" if key else text
    if missing := re.search("missing required field `(.+)`", text):
        return f"{_dotted(key, missing[1])} is missing; every recipe needs it"
    value = tree
    for part in parts:
        value = value[part]
    kind = _kind_at(parts)
    words = [word for one in union_members(kind) if get_origin(one) is Literal for word in get_args(one)]
    if words and int not in union_members(kind):
        return f"{key}: {unknown_name('value', str(value), words)}"
    return f"{key or 'the recipe'} is {_shown(value)}; expected {expected_text(kind)}"


def expected_text(kind: Any) -> str:
    """What a field of this type takes, in words.

    >>> expected_text(int | Literal["adaptive"])
    'a whole number or adaptive'
    """
    members = [one for one in union_members(kind) if one is not NoneType]
    if is_dataclass(members[0]):
        return f"keys such as {fields(members[0])[0].name}:"
    if get_origin(members[0]) is tuple:
        return f"a list, such as [{'joint, paper' if Method in get_args(members[0]) else '1, 2'}]"
    return " or ".join(" or ".join(get_args(one)) if get_origin(one) is Literal else _NAMES[one] for one in members)


def _kind_at(parts: Sequence[Any]) -> Any:
    """The type of the value at a place in a recipe; None where the recipe has no such place."""
    kind: Any = RunRecipe
    for part in parts:
        members = [one for one in union_members(kind) if one is not NoneType]
        if not members:
            return None
        if isinstance(part, int):
            kind = get_args(members[0])[0]
        else:
            kind = get_type_hints(members[0]).get(part) if is_dataclass(members[0]) else None
    return kind


def union_members(kind: Any) -> tuple[Any, ...]:
    """The types that a union joins; a Literal or any other type is one by itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,) if kind is not None else ()


def _dotted(section: str, key: Any) -> str:
    return f"{section}.{key}" if section else str(key)


def _shown(value: Any) -> str:
    return {dict: "a section of keys", list: "a list", NoneType: "nothing"}.get(type(value), repr(value))
