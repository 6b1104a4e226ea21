"""A run from one recipe: train, vote, certify, report; each step is done once and resumes after an interruption."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.pipeline.recipe import RunRecipe, RunSweep
    from multiguard.pipeline.recipe_file import find_recipe, parse_recipe, read_recipe, recipe_names, recipe_text
    from multiguard.pipeline.record import RunRecord, StepRecord, read_record
    from multiguard.pipeline.runner import Observer, RunResult, run_recipe

__all__ = [
    "Observer",
    "RunRecipe",
    "RunRecord",
    "RunResult",
    "RunSweep",
    "StepRecord",
    "find_recipe",
    "parse_recipe",
    "read_recipe",
    "read_record",
    "recipe_names",
    "recipe_text",
    "run_recipe",
]

__getattr__ = lazy_names(
    __name__,
    {
        "recipe": ("RunRecipe", "RunSweep"),
        "recipe_file": ("find_recipe", "parse_recipe", "read_recipe", "recipe_names", "recipe_text"),
        "record": ("RunRecord", "StepRecord", "read_record"),
        "runner": ("Observer", "RunResult", "run_recipe"),
    },
)
