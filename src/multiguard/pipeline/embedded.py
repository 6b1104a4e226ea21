"""The recipes that come with multiguard, found by name."""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.naming import unknown_name
from multiguard.pipeline.parsing import read_recipe
from multiguard.pipeline.recipe import RunRecipe

_FOLDER = files("multiguard") / "recipes"
_SUFFIX = ".yaml"


def recipe_names() -> list[str]:
    """The names of the recipes that come with multiguard."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FOLDER.iterdir() if entry.name.endswith(_SUFFIX))


def find_recipe(name: str, changes: Sequence[str] = ()) -> RunRecipe:
    """The recipe in the file of this path, or the embedded one of this name, with changes over it.

    Args:
        name: A path, or one of `recipe_names()`.
        changes: As `read_recipe` takes them.
    """
    path = Path(name)
    if path.is_file():
        return read_recipe(path, changes)
    if path.suffix or path.name != name:
        raise InvalidInputError(f"{name}: no such recipe file; the embedded ones are {', '.join(recipe_names())}")
    if name not in recipe_names():
        raise InvalidInputError(f"{unknown_name('recipe', name, recipe_names())}; a file is named by its path")
    with as_file(_FOLDER / f"{name}{_SUFFIX}") as embedded:
        return read_recipe(embedded, changes)
