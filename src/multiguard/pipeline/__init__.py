"""The whole run from one recipe: train, vote, certify, report; each step done once, none lost."""

from multiguard.pipeline.asked import CertifyPart, SweepPart, VotePart
from multiguard.pipeline.certifying import CertifyJob, certify
from multiguard.pipeline.embedded import find_recipe, recipe_names
from multiguard.pipeline.parsing import parse_recipe, read_recipe, recipe_text
from multiguard.pipeline.recipe import DataPart, ModelPart, ReportPart, RunRecipe, TrainPart
from multiguard.pipeline.record import RunRecord, StepRecord, read_record
from multiguard.pipeline.run import run_recipe
from multiguard.pipeline.watching import Watcher

__all__ = [
    "CertifyJob",
    "CertifyPart",
    "DataPart",
    "ModelPart",
    "ReportPart",
    "RunRecipe",
    "RunRecord",
    "StepRecord",
    "SweepPart",
    "TrainPart",
    "VotePart",
    "Watcher",
    "certify",
    "find_recipe",
    "parse_recipe",
    "read_recipe",
    "read_record",
    "recipe_names",
    "recipe_text",
    "run_recipe",
]
