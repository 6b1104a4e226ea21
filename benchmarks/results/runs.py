"""Run folders for the page, certified if they are not yet: the main run and its arms."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from multiguard.certify import TopK
from multiguard.errors import DataError
from multiguard.evaluate import CertifyConfig, Parameter
from multiguard.evaluate.sweeps import sweep_configs
from multiguard.models.model_folder import CARD_FILE, ModelCard, read_card
from multiguard.pipeline import (
    CertifyJob,
    Observer,
    RunRecipe,
    RunRecord,
    StepRecord,
    certify,
    read_recipe,
    read_record,
)
from multiguard.pipeline.recipe import Arm
from multiguard.pipeline.recipe_file import RECIPE_FILE
from multiguard.pipeline.record import Meter, output_hashes, write_record
from multiguard.pipeline.report_job import PAGE
from multiguard.pipeline.steps import CertifyStep, Plan, ReportStep, Step
from multiguard.report import Study
from multiguard.results import read_certificates
from multiguard.votes import Votes, read_votes
from multiguard.votes.shards import MANIFEST_NAME


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder that has votes, with those of its arms that have votes.

    Attributes:
        folder: The run folder, or a copy of its votes, recipe.yaml and run.json from another machine.
        recipe: Its recipe.
        record: The cost of each step.
        study: The certificates of the main run, compared with those of its arms.
    """

    folder: Path
    recipe: RunRecipe
    record: RunRecord
    study: Study

    @property
    def rule(self) -> TopK:
        """The rule of the main run."""
        rule = self.study.config.rule
        assert isinstance(rule, TopK)
        return rule

    @cached_property
    def votes(self) -> Votes:
        """The votes of the main run."""
        return read_votes(self.folder / "votes")

    @property
    def card(self) -> ModelCard | None:
        """The model card of the main network; None if the model was not copied."""
        home = self.folder / "model"
        return read_card(home) if (home / CARD_FILE).is_file() else None

    def study_with(self, rule: TopK) -> Study:
        """The same votes with another rule, as a study of its own."""
        home, votes = self.folder / f"certificates-{rule.k_prime}-{rule.k}", self.folder / "votes"
        part = replace(self.recipe.certify, k=rule.k, k_prime=rule.k_prime, radius_step=None, bands=None)
        if not _has_certificates(home, votes, part.config("top-k"), {}):
            certify(CertifyJob(votes, home, part, force=True))
        return Study(read_certificates(home))


def open_run(folder: Path) -> Run:
    """The run with certificates of every arm that has votes; missing or stale ones are made now.

    What is made now goes on the run's record with its cost, as `multiguard run` would put it there.
    """
    recipe = read_recipe(folder / RECIPE_FILE)
    plan = Plan(recipe, folder, read_record(folder).command)
    arms = plan.arms
    voted = {name: arm for name, arm in arms.items() if (arm.home / "votes" / MANIFEST_NAME).is_file()}
    if "" not in voted:
        raise DataError(f"{folder} has no votes of its main run; copy them from where they were drawn")
    certified = [_certify(plan, arm) for arm in voted.values()]
    if voted == arms and (any(certified) or not (folder / PAGE).is_file()):
        _run_step(ReportStep(plan), folder)
    found = {name: plan.certificates(arm) for name, arm in voted.items()}
    return Run(folder, recipe, read_record(folder), Study(found.pop(""), found))


def _certify(plan: Plan, arm: Arm) -> bool:
    """Certify an arm unless it is certified already; returns whether it was done now."""
    vary = {} if arm.name else plan.recipe.sweep.vary
    if _has_certificates(arm.certificates, arm.home / "votes", plan.recipe.config, vary):
        return False
    _run_step(CertifyStep(plan, arm), plan.out)
    return True


def _run_step(step: Step, folder: Path) -> None:
    """Run a step and record it."""
    meter = Meter()
    outputs = output_hashes(folder, step.run(Observer()))
    done = StepRecord(step.inputs(), outputs, **asdict(meter.read()))
    write_record(folder, read_record(folder).with_step(step.name, done))


def _has_certificates(
    home: Path, votes: Path, config: CertifyConfig, vary: Mapping[Parameter, Sequence[float]]
) -> bool:
    """Whether the folder has certificates of these very votes, with this config and these sweeps."""
    try:
        found, drawn = read_certificates(home), read_votes(votes)
    except DataError:
        return False
    configs = {config.resolve(drawn.provenance), *sweep_configs(drawn, config, vary)}
    return found.votes_hash == drawn.manifest_hash and configs <= {curve.config for curve in found.curves}
