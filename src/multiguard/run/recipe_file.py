"""Recipes as YAML: every key is known and every value has its type, or one line says where not and what to write."""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import yaml

from multiguard.errors import InvalidInputError
from multiguard.io.config import Config, field_types, from_tree, members, plain_type, to_tree
from multiguard.io.files import read_regular
from multiguard.io.names import unknown_name
from multiguard.io.records import parse_yaml
from multiguard.models.config import ModelConfig
from multiguard.run.recipe import Recipe

RECIPE_FILE = "recipe.yaml"  # in a run folder, with every value written out
_FOLDER = files("multiguard") / "recipes"
_SUFFIX = ".yaml"
_MOST = 1 << 20  # bytes of a recipe


def recipe_names() -> list[str]:
    """The names of the recipes that come with multiguard.

    >>> "digits" in recipe_names()
    True
    """
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FOLDER.iterdir() if entry.name.endswith(_SUFFIX))


def find_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
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


def read_recipe(path: Path, changes: Sequence[str] = ()) -> Recipe:
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


def parse_recipe(text: str, name: str, changes: Sequence[str] = ()) -> Recipe:
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
    tree = parse_yaml(text, name)
    if not isinstance(tree, dict):
        raise InvalidInputError(f"{name}: expected the keys of a recipe, such as data: and sigma:, got {_shown(tree)}")
    for change in changes:
        _apply_change(tree, change)
    if isinstance(tree.get("model"), str):
        tree["model"] = {"spec": tree["model"]}
    try:
        return from_tree(Recipe, tree)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def recipe_text(recipe: Recipe) -> str:
    """The recipe as YAML that parses to an equal one, every value written out.

    >>> parse_recipe(recipe_text(find_recipe("digits")), "again") == find_recipe("digits")
    True
    """
    return str(yaml.safe_dump(to_tree(recipe), sort_keys=False, allow_unicode=True))


def _apply_change(tree: dict[Any, Any], change: str) -> None:
    """Put a value as typed on the command line into the tree: text where text belongs, YAML elsewhere."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise InvalidInputError(f"--set {change}: expected KEY=VALUE, such as certify.k=5")
    *sections, last = key.strip().split(".")
    is_text = _takes_text([*sections, last]) and text != "null"
    for section in sections:
        inner = tree.get(section)
        tree[section] = inner = dict(inner) if isinstance(inner, dict) else {}
        tree = inner
    tree[last] = text if is_text else parse_yaml(text, "--set")


def _takes_text(sections: Sequence[str]) -> bool:
    """Whether the value at this place in a recipe is text, or a path."""
    kind: Any = Recipe
    for section in sections:
        if not (isinstance(kind, type) and issubclass(kind, Config)):
            return False
        kinds = [plain_type(one) for one in members(field_types(kind).get(section))]
        if not kinds:
            return False
        kind = kinds[0]
    return kind in (str, Path, ModelConfig)


def _shown(value: Any) -> str:
    return {list: "a list", type(None): "nothing"}.get(type(value), repr(value))
