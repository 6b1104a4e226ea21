"""The steps of a run: what decides the outcome of each, how it is done, and which files it writes."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from multiguard.errors import VotesError
from multiguard.evaluate import Results, SweepConfig, certify_votes, read_certificates
from multiguard.evaluate.certification import certify_request
from multiguard.evaluate.certifier import LabelSource
from multiguard.io.commands import with_seeds
from multiguard.io.config import to_tree
from multiguard.io.writer import written_files
from multiguard.pipeline.folders import check_content
from multiguard.pipeline.recipe import Arm, RunRecipe, plan_arms
from multiguard.pipeline.record import read_record
from multiguard.smooth.config import VoteConfig
from multiguard.train.config import TrainConfig
from multiguard.version import __version__
from multiguard.votes import Votes, read_votes
from multiguard.votes.folder import read_source
from multiguard.votes.shards import MANIFEST_NAME, is_shard_file, load_manifest

if TYPE_CHECKING:
    from multiguard.pipeline.runner import Observer
    from multiguard.smooth.vote import NamedRun

Kind = Literal["train", "vote", "certify", "report"]
KINDS: tuple[Kind, ...] = ("train", "vote", "certify", "report")


class Plan:
    """A recipe in its run folder: its arms, their steps in order, and their certificates, each read once.

    All arms have one noise seed. A recipe without one gets that of the votes in the folder, or a random one: `recipe`
    names it.
    """

    def __init__(self, recipe: RunRecipe, out: Path, command: str = "") -> None:
        self.out, self._command = out, command
        self._any_noise = recipe.vote.noise_seed is None
        self.recipe = _with_noise_seed(recipe, _recorded_noise_seed(out)) if self._any_noise else recipe
        self.arms = plan_arms(recipe, out)
        self.certified: dict[str, Results] = {}  # by the name of the arm, as they were read

    @property
    def command(self) -> str:
        """The command line, with both seeds named; empty if it is not known."""
        noise_seed = self.recipe.vote.noise_seed
        assert noise_seed is not None
        return with_seeds(self._command, seed=self.recipe.data.seed, noise_seed=noise_seed)

    def renew_noise(self) -> bool:
        """Draw a new noise seed, unless the recipe was given with one; whether it has."""
        if self._any_noise:
            self.recipe = _with_noise_seed(self.recipe, None)
        return self._any_noise

    def steps(self) -> Iterator["Step"]:
        """The steps of a run in order: each arm from model to certificates, the report at the end."""
        for arm in self.arms.values():
            if self.recipe.train is not None:
                yield TrainStep(self, arm, self.recipe.train)
            yield VoteStep(self, arm)
            yield CertifyStep(self, arm)
        yield ReportStep(self)

    def certificates(self, arm: Arm) -> Results:
        """The certificates of an arm as they are in its folder."""
        if arm.name not in self.certified:
            self.certified[arm.name] = read_certificates(arm.certificates)
        return self.certified[arm.name]


class Step(ABC):
    """One step of a run, with its name in the record and the folder that it writes to."""

    kind: Kind
    costly: bool = False  # whether its output is hours of work, never replaced without `force`

    def __init__(self, plan: Plan, name: str, home: Path) -> None:
        self.plan, self.name, self.home = plan, name, home

    @abstractmethod
    def inputs(self) -> dict[str, Any]:
        """Everything that decides the outcome, by name."""

    @abstractmethod
    def run(self, observer: "Observer") -> list[Path]:
        """Do the step, or resume it, and return the files that it wrote."""

    def unfinished(self) -> str:
        """What a finished step still has to do; empty if nothing."""
        return ""

    def still_valid(self, changes: Collection[str]) -> bool:
        """Whether the old output is what would be made now, although these inputs look different."""
        return False

    def is_damaged(self) -> bool:
        """Whether the old output cannot be resumed."""
        return False

    def holds_work(self) -> bool:
        """Whether the folder holds anything that would be lost."""
        return self.home.is_dir() and any(path.is_file() for path in self.home.rglob("*"))

    def discard(self) -> None:  # noqa: B027 - what is cheap is simply replaced
        """Remove the old output, once nothing can be wrong with the new one."""

    def renew(self, changes: Collection[str]) -> bool:
        """Renew what must not be used again, now that these inputs have changed; whether that changes inputs, too."""
        return False


class TrainStep(Step):
    """Trains the base classifier of an arm."""

    kind, costly = "train", True

    def __init__(self, plan: Plan, arm: Arm, train: TrainConfig) -> None:
        super().__init__(plan, arm.step_name("train"), arm.home / "model")
        self._arm, self._train = arm, train

    @cached_property
    def _config(self) -> TrainConfig:
        from multiguard.pipeline.train_job import arm_config

        return arm_config(self.plan.recipe, self._train, self._arm)

    def inputs(self) -> dict[str, Any]:
        """The hyperparameters, the weights to start from and the images."""
        from multiguard.pipeline.train_job import training_inputs

        return training_inputs(self.plan.recipe, self._config)

    def run(self, observer: "Observer") -> list[Path]:
        """Train to the end, or resume."""
        from multiguard.train import train

        data, cache = self.plan.recipe.data, self.plan.out / "cache"
        with observer.bar("images") as progress:
            train(self._config, data, out=self.home, cache=cache, progress=progress, on_epoch=observer.on_epoch)
        return [self.home / "model.json", self.home / "model.safetensors"]

    def discard(self) -> None:
        """Remove the old model."""
        from multiguard.pipeline.train_job import discard_old_model

        discard_old_model(self._config, self.plan.recipe.data, self.home)


class VoteStep(Step):
    """Votes on the images with the classifier of an arm."""

    kind, costly = "vote", True

    def __init__(self, plan: Plan, arm: Arm) -> None:
        super().__init__(plan, arm.step_name("vote"), arm.home / "votes")
        self._arm = arm

    @cached_property
    def _run(self) -> "NamedRun":
        from multiguard.pipeline.train_job import trained_model
        from multiguard.smooth.vote import NamedRun

        recipe, config = self.plan.recipe, arm_votes(self.plan.recipe, self._arm)
        model = recipe.model or trained_model(recipe, self._arm.home / "model")
        data = recipe.data if recipe.model is not None else recipe.data.replace(size=None)
        run = NamedRun(config, data, model, noise=self._arm.noise, target=recipe.certify if config.adaptive else None)
        recipe.require_labels(len(run.smoother.classifier.label_names))
        return run

    def inputs(self) -> dict[str, Any]:
        """The classifier, the images and how it is sampled."""
        return self._run.inputs()

    def run(self, observer: "Observer") -> list[Path]:
        """Vote to the end, or resume."""
        from multiguard.smooth.vote import failure_text, mean_draws

        for text in (*self._run.notes, *self._run.warnings()):
            observer.on_step(self.name, text)
        check_content(self.home, "votes")
        with observer.stopping() as stop, observer.bar("images") as progress:
            votes = self._run.save(self.home, self.plan.command, partial(progress, "voting"), stop)
        assert votes is not None  # a run is one process
        if (failed := failure_text(votes)) is not None:
            observer.on_step(self.name, failed)
        if self.plan.recipe.vote.adaptive:
            observer.on_step(self.name, f"{mean_draws(votes):.1f} draws per image on average")
        return [path for path in self.home.iterdir() if path.is_file() and not path.name.startswith(".")]

    def unfinished(self) -> str:
        """Failed images to try again, unless the recipe records them."""
        record = self.plan.recipe.vote.on_error == "record"
        failed = 0 if record else len(load_manifest(self.home).failures)
        return f"{failed} failed {'image is' if failed == 1 else 'images are'} tried again" if failed else ""

    def still_valid(self, changes: Collection[str]) -> bool:
        """Whether only files have changed, and each image that has votes still decodes to the one voted on."""
        from multiguard.smooth.vote import votes_match_images

        only_files = list(changes) == ["data.files"]
        return only_files and self.holds_work() and votes_match_images(self.home, self._run.images)

    def is_damaged(self) -> bool:
        """Whether there is a manifest that cannot be read."""
        try:
            load_manifest(self.home)
        except VotesError:
            return (self.home / MANIFEST_NAME).exists()
        return False

    def holds_work(self) -> bool:
        """Whether the folder holds a shard or the entry of one."""
        return self.home.is_dir() and any(is_shard_file(path.name) for path in self.home.iterdir())

    def discard(self) -> None:
        """Remove the old votes."""
        self._run.discard_old(self.home)

    def renew(self, changes: Collection[str]) -> bool:
        """Draw a new noise seed for other images: whoever supplied them may know the old one.

        The main arm does so for all, since they vote on the same images.
        """
        renews = not self._arm.name and any(name.startswith("data.") for name in changes) and self.plan.renew_noise()
        if renews:
            del self._run
        return renews


class CertifyStep(Step):
    """Certifies the votes of an arm; the main arm also sweeps."""

    kind = "certify"

    def __init__(self, plan: Plan, arm: Arm) -> None:
        super().__init__(plan, arm.step_name("certify"), arm.certificates)
        self._arm, recipe = arm, plan.recipe
        self._sweep = SweepConfig() if arm.name else recipe.sweep.of_votes
        self._labels: LabelSource = "truth" if recipe.data.labelled else "pilot"

    @cached_property
    def _votes(self) -> Votes:
        """The votes, their manifest read once: what is certified is what is recorded."""
        return read_votes(self._arm.home / "votes")

    def inputs(self) -> dict[str, Any]:
        """The votes and what is certified from them."""
        return certify_request(self.plan.recipe.certify, self._votes, self._sweep, self._labels)

    def run(self, observer: "Observer") -> list[Path]:
        """Certify the votes."""
        with observer.bar("steps") as progress:
            self.plan.certified[self._arm.name] = certify_votes(
                self.plan.recipe.certify,
                self._votes,
                sweep=self._sweep,
                labels=self._labels,
                source=read_source(self._arm.home / "votes"),
                command=self.plan.command or None,
                out=self.home,
                force=True,
                progress=progress,
            )
        return [path for path in self.home.iterdir() if path.is_file() and not path.name.startswith(".")]


class ReportStep(Step):
    """Makes the figures, the tables and the page of a run."""

    kind = "report"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "report", plan.out)

    def inputs(self) -> dict[str, Any]:
        """The certificates of every arm and what the page shows."""
        hashes = {name or "main": self.plan.certificates(arm).certificates_hash for name, arm in self.plan.arms.items()}
        return {
            **{f"report.{name}": value for name, value in to_tree(self.plan.recipe.report).items()},
            **{f"certificates of {name}": value for name, value in hashes.items()},
            "multiguard": __version__,
        }

    def run(self, observer: "Observer") -> list[Path]:
        """Make the report."""
        from multiguard.report import report, report_files

        beside = {name: self.plan.certificates(arm) for name, arm in self.plan.arms.items()}
        runs, commands = {"": beside.pop("")}, [self.plan.command] if self.plan.command else None
        with observer.bar("images") as progress:
            bar = partial(progress, "reporting")
            study = report(
                self.plan.recipe.report, runs, beside=beside, out=self.home, commands=commands, force=True, progress=bar
            )
        for note in study.notes:
            observer.on_step(self.name, note)
        return written_files(report_files(self.home)[0])


def _recorded_noise_seed(out: Path) -> int | None:
    """The noise seed of the votes in a run folder, finished or not; None if there are none."""
    votes = read_record(out).steps.get(VoteStep.kind)
    recorded = None if votes is None else votes.inputs.get("vote.noise_seed")
    return recorded if isinstance(recorded, int) else None


def _with_noise_seed(recipe: RunRecipe, noise_seed: int | None) -> RunRecipe:
    """The recipe with this noise seed; None draws a random one."""
    from multiguard.smooth.noise_source import resolve_seed

    return recipe.replace(vote=recipe.vote.replace(noise_seed=resolve_seed(noise_seed)))


def arm_votes(recipe: RunRecipe, arm: Arm) -> VoteConfig:
    """How an arm is sampled: only the main one is swept over n, the others need no more draws than certify uses."""
    part, draws = recipe.vote, recipe.certify.draws
    if part.adaptive or draws is None or not arm.name:
        return part
    return part.replace(draws=min(draws, part.most_draws))
