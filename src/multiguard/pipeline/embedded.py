"""The recipes that come with multiguard, found by name."""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name
from multiguard.pipeline.parsing import read_recipe
from multiguard.pipeline.recipe import RunRecipe

_FOLDER = files("multiguard") / "recipes"
_SUFFIX = ".yaml"


def recipe_names() -> list[str]:
    """The names of the recipes that come with multiguard."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FOLDER.iterdir() if entry.name.endswith(_SUFFIX))


def find_recipe(name: str, changes: Sequence[str] = ()) -> RunRecipe:
    """The embedded recipe of this name, or the one in the file of this path, with changes over it.

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
        raise InvalidInputError(f"{name}: no such recipe file; the embedded ones are {', '.join(recipe_names())}")
    raise InvalidInputError(f"{unknown_name('recipe', name, recipe_names())} (a file is named by its path)")
