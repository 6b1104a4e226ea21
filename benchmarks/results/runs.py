"""Run folders as the page needs them: certified where they are not yet, the main run with its arms beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from multiguard.certify import TopK
from multiguard.errors import DataError
from multiguard.evaluate import CertifyConfig, Parameter
from multiguard.evaluate.sweeps import sweep_configs
from multiguard.models.folder import CARD_FILE, ModelCard, read_card
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
from multiguard.votes.manifest import MANIFEST_NAME


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder whose votes are there; of its arms those whose votes are.

    Attributes:
        folder: The run folder, or what came back of it from another machine: votes, recipe.yaml and run.json will do.
        recipe: What was asked.
        record: What each step took.
        study: The main run's certificates, those of its arms beside them.
    """

    folder: Path
    recipe: RunRecipe
    record: RunRecord
    study: Study

    @property
    def config(self) -> CertifyConfig:
        """What the main run certifies, its draws a number."""
        return self.study.config

    @property
    def rule(self) -> TopK:
        """The smoothed classifier of the main run."""
        assert isinstance(self.config.rule, TopK)
        return self.config.rule

    @cached_property
    def votes(self) -> Votes:
        """The votes of the main run."""
        return read_votes(self.folder / "votes")

    @property
    def card(self) -> ModelCard | None:
        """The main network's card; None where the model was left behind."""
        home = self.folder / "model"
        return read_card(home) if (home / CARD_FILE).is_file() else None

    def asked_again(self, k: int, k_prime: int) -> Study:
        """The same votes with other k and k', as a study of its own."""
        home, votes = self.folder / f"certificates-{k_prime}-{k}", self.folder / "votes"
        part = replace(self.recipe.certify, k=k, k_prime=k_prime, radius_step=None, bands=None)
        if not _is_of(home, votes, part.config("top-k"), {}):
            certify(CertifyJob(votes, home, part, force=True))
        return Study(read_certificates(home))


def open_run(folder: Path) -> Run:
    """The run with certificates of every arm whose votes lie there, made now where they are missing or of others.

    What is made now goes on the run's record, with what it took, as `multiguard run` would put it there.
    """
    recipe = read_recipe(folder / RECIPE_FILE)
    plan = Plan(recipe, folder, read_record(folder).command)
    arms = plan.arms
    voted = {name: arm for name, arm in arms.items() if (arm.home / "votes" / MANIFEST_NAME).is_file()}
    if "" not in voted:
        raise DataError(f"{folder} holds no votes of its main run; bring them back from where they were drawn")
    certified = [_certify(plan, arm) for arm in voted.values()]
    if voted == arms and (any(certified) or not (folder / PAGE).is_file()):
        _take(ReportStep(plan), folder)
    found = {name: plan.certificates(arm) for name, arm in voted.items()}
    return Run(folder, recipe, read_record(folder), Study(found.pop(""), found))


def _certify(plan: Plan, arm: Arm) -> bool:
    """Certify an arm unless that is done; whether it was done now."""
    vary = {} if arm.name else plan.recipe.sweep.vary
    if _is_of(arm.certificates, arm.home / "votes", plan.recipe.config, vary):
        return False
    _take(CertifyStep(plan, arm), plan.out)
    return True


def _take(step: Step, folder: Path) -> None:
    """Do a step and put it on the record."""
    meter = Meter()
    outputs = output_hashes(folder, step.run(Observer()))
    done = StepRecord(step.inputs(), outputs, **asdict(meter.read()))
    write_record(folder, read_record(folder).with_step(step.name, done))


def _is_of(home: Path, votes: Path, config: CertifyConfig, vary: Mapping[Parameter, Sequence[float]]) -> bool:
    """Whether the folder holds certificates of these votes as they are, with this config and swept so."""
    try:
        found, drawn = read_certificates(home), read_votes(votes)
    except DataError:
        return False
    configs = {config.resolve(drawn.provenance), *sweep_configs(drawn, config, vary)}
    return found.votes_hash == drawn.manifest_hash and configs <= {curve.config for curve in found.curves}
