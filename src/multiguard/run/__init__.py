"""Recipes: train, vote, certify and report in one folder; each step resumes, or finds its work done."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.run.recipe import Recipe, find_recipe, parse_recipe, read_recipe, recipe_names, recipe_text
    from multiguard.run.steps import Observer, run

__all__ = ["Observer", "Recipe", "find_recipe", "parse_recipe", "read_recipe", "recipe_names", "recipe_text", "run"]

__getattr__ = lazy_names(
    __name__,
    {
        "recipe": ("Recipe", "find_recipe", "parse_recipe", "read_recipe", "recipe_names", "recipe_text"),
        "steps": ("Observer", "run"),
    },
)
