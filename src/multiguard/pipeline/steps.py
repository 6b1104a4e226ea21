"""The steps of a run: each knows what decides its outcome, how it is done, and what it leaves behind."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from multiguard.errors import VotesError
from multiguard.io.files import file_checksum
from multiguard.pipeline.asked import VotePart
from multiguard.pipeline.certifying import SOURCE_FILE, CertifyJob, certify
from multiguard.pipeline.recipe import ModelPart, RunRecipe, TrainPart
from multiguard.pipeline.watching import Watcher
from multiguard.results.certificates_folder import CERTIFICATES_NAME
from multiguard.version import __version__
from multiguard.votes.entry import is_shard_file
from multiguard.votes.manifest import MANIFEST_NAME, load_manifest

if TYPE_CHECKING:
    from multiguard.pipeline.voting import ReadyVote
    from multiguard.train.job import Job

Kind = Literal["train", "vote", "certify", "report"]
KINDS: tuple[Kind, ...] = ("train", "vote", "certify", "report")


@dataclass(frozen=True)
class Arm:
    """One line of a run from model to certificates.

    Attributes:
        name: Its name; empty for the run's main one.
        home: Its folder.
        sigma: The noise of its votes.
        noise: The noise in training; None for what the recipe says.
    """

    name: str
    home: Path
    sigma: float
    noise: float | None = None


class Step(ABC):
    """One step of a run.

    Attributes:
        kind: What is done.
        name: The step's name in the record.
        home: The folder that it writes to.
        costly: Whether its output is hours of work, and never replaced without being told to.
    """

    kind: Kind
    costly: bool = False

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home

    @abstractmethod
    def inputs(self) -> dict[str, Any]:
        """All that decides the outcome, by name."""

    @abstractmethod
    def do(self, watcher: Watcher) -> list[Path]:
        """Do the step, or what an interruption left of it, and return the files that it stands for."""

    def unsettled(self) -> str:
        """What is still to be done of a step that has ended, in words; empty where nothing is."""
        return ""

    def stands(self, changes: Collection[str]) -> bool:
        """Whether what lies there is what would be made now, although these of its inputs look otherwise."""
        return False

    def is_damaged(self) -> bool:
        """Whether what lies there cannot be gone on with."""
        return False

    def holds_work(self) -> bool:
        """Whether anything lies where the step writes that would be lost."""
        return self.home.is_dir() and any(path.is_file() for path in self.home.rglob("*"))

    def discard(self) -> None:  # noqa: B027 - what is made anew each time needs no throwing away
        """Throw the old output away, after all that can be wrong with the new one has been looked at."""


class TrainStep(Step):
    """Trains the base classifier of an arm."""

    kind, costly = "train", True

    def __init__(self, recipe: RunRecipe, train: TrainPart, run: Path, arm: Arm) -> None:
        super().__init__(step_name(arm, "train"), arm.home / "model")
        self._recipe, self._train, self._run, self._arm = recipe, train, run, arm

    @cached_property
    def _job(self) -> "Job":
        from multiguard.pipeline.training import training_job

        return training_job(self._recipe, self._train, self._arm.sigma, self._arm.noise, self._run, self.home)

    def inputs(self) -> dict[str, Any]:
        """The training recipe, the weights it starts from and the images."""
        from multiguard.pipeline.training import training_inputs

        return training_inputs(self._recipe, self._job)

    def do(self, watcher: Watcher) -> list[Path]:
        """Train to the end, or go on."""
        from multiguard.train.job import run_job

        with watcher.bar("images") as progress:
            run_job(self._job, watcher.on_epoch, progress)
        return [self.home / "model.json", self.home / "model.safetensors"]

    def discard(self) -> None:
        """Throw the old model away."""
        from multiguard.pipeline.training import discard_old_model

        discard_old_model(self._job)


class VoteStep(Step):
    """Votes on the images with the classifier of an arm."""

    kind, costly = "vote", True

    def __init__(self, recipe: RunRecipe, arm: Arm, command: str) -> None:
        super().__init__(step_name(arm, "vote"), arm.home / "votes")
        self._recipe, self._arm, self._command = recipe, arm, command

    @cached_property
    def _ready(self) -> "ReadyVote":
        from multiguard.pipeline.voting import VoteJob, prepare_vote

        recipe, how = self._recipe, arm_votes(self._recipe, self._arm)
        model = recipe.model or ModelPart(str(self._arm.home / "model"))
        source = recipe.data.source(recipe.data.size if recipe.model is not None else None)
        aim = recipe.setting if how.adaptive else None
        ready = prepare_vote(VoteJob(model, source, self.home, self._arm.sigma, how, aim, self._command))
        recipe.require_labels(len(ready.classifier.label_names))
        return ready

    def inputs(self) -> dict[str, Any]:
        """The classifier, the images and how it is sampled."""
        return self._ready.inputs()

    def do(self, watcher: Watcher) -> list[Path]:
        """Vote to the end, or go on."""
        if self._ready.order_note is not None:
            watcher.on_step(self.name, f"{self._ready.order_note}; model.labels: FILE if the model's order is another")
        with watcher.stopping() as stop, watcher.bar("images") as progress:
            self._ready.vote(partial(progress, "voting"), stop)
        failed = self._ready.failures_said()
        if failed is not None:
            watcher.on_step(self.name, failed)
        if self._recipe.vote.adaptive:
            watcher.on_step(self.name, f"{self._ready.mean_draws():.1f} draws of an image on average")
        shards = [self.home / shard.file for shard in load_manifest(self.home).shards.values()]
        return [self.home / MANIFEST_NAME, self.home / SOURCE_FILE, *shards]

    def unsettled(self) -> str:
        """That failed images are to be tried again, where the recipe does not ask to record them."""
        failed = 0 if self._recipe.vote.on_error == "record" else len(self._ready.failures())
        return f"{failed} failed {'image is' if failed == 1 else 'images are'} tried again" if failed else ""

    def stands(self, changes: Collection[str]) -> bool:
        """Whether only files have changed, and each image that has votes is, decoded, still the one voted on."""
        from multiguard.pipeline.voted import of_these_images

        return list(changes) == ["data.files"] and self.holds_work() and of_these_images(self.home, self._ready.images)

    def is_damaged(self) -> bool:
        """Whether there is a manifest that cannot be read."""
        try:
            load_manifest(self.home)
        except VotesError:
            return (self.home / MANIFEST_NAME).exists()
        return False

    def holds_work(self) -> bool:
        """Whether a shard lies there, or the entry of one."""
        return self.home.is_dir() and any(is_shard_file(path.name) for path in self.home.iterdir())

    def discard(self) -> None:
        """Throw the old votes away."""
        self._ready.discard_old()


class CertifyStep(Step):
    """Certifies the votes of an arm; the main one's sweeps among them."""

    kind = "certify"

    def __init__(self, recipe: RunRecipe, arm: Arm, command: str) -> None:
        super().__init__(step_name(arm, "certify"), arm.home / "certificates")
        part, self._votes = recipe.certify, arm.home / "votes"
        self._job = CertifyJob(
            self._votes,
            self.home,
            recipe.setting,
            methods=part.methods,
            labels="truth" if recipe.data.labelled else "pilot",
            vary={} if arm.name else recipe.sweep.vary,
            radius_to=part.radius_to,
            radius_step=part.radius_step,
            bands=part.bands,
            command=command,
            force=True,
        )

    def inputs(self) -> dict[str, Any]:
        """The votes and what is asked of them."""
        asked = asdict(replace(self._job, votes=Path(), out=Path(), command=""))
        for name in ("votes", "out", "command", "force"):
            del asked[name]
        setting = asked.pop("setting")
        return {
            "certify.rule": self._job.setting.rule,
            **{f"certify.{name}": value for name, value in {**setting, **asked}.items()},
            "votes": file_checksum(self._votes / MANIFEST_NAME),
            "multiguard": __version__,
        }

    def do(self, watcher: Watcher) -> list[Path]:
        """Certify anew."""
        with watcher.bar("steps") as progress:
            certify(self._job, progress)
        return _files_in(self.home)


class ReportStep(Step):
    """Makes figures, tables and the page of the whole run."""

    kind = "report"

    def __init__(self, recipe: RunRecipe, run: Path, arms: Mapping[str, Arm], command: str) -> None:
        super().__init__("report", run)
        self._recipe, self._arms, self._command = recipe, arms, command

    def inputs(self) -> dict[str, Any]:
        """The certificates of every arm and what the page shall show."""
        certificates = {name or "main": arm.home / "certificates" for name, arm in self._arms.items()}
        return {
            **{f"report.{name}": value for name, value in asdict(self._recipe.report).items()},
            **{
                f"certificates of {name}": file_checksum(home / CERTIFICATES_NAME)
                for name, home in certificates.items()
            },
            "multiguard": __version__,
        }

    def do(self, watcher: Watcher) -> list[Path]:
        """Make the report anew."""
        from multiguard.pipeline.reporting import FIGURES, PAGE, TABLES, ReportJob, report

        part, places = self._recipe.report, {name: arm.home / "certificates" for name, arm in self._arms.items()}
        job = ReportJob(
            places.pop(""),
            self.home / PAGE,
            self.home / FIGURES,
            self.home / TABLES,
            beside=places,
            title=part.title,
            commands=[self._command] if self._command else [],
            images=part.images,
            gallery=part.gallery,
            force=True,
        )
        with watcher.bar("images") as progress:
            done = report(job, partial(progress, "reporting"))
        if done.without_images is not None and part.images:
            watcher.on_step(self.name, f"the page shows no images: {done.without_images}")
        if done.replaced:
            watcher.on_step(self.name, done.replaced)
        return [done.page, *done.figures, *done.tables]


def step_name(arm: Arm, kind: Kind) -> str:
    """What a step of an arm is called in the record."""
    return f"{arm.name} {kind}" if arm.name else kind


def arm_votes(recipe: RunRecipe, arm: Arm) -> VotePart:
    """How an arm is sampled: only the main one is swept over n, the others need no more draws than certify them."""
    how, asked = recipe.vote, recipe.certify.draws
    if how.draws == "adaptive" or asked is None or not arm.name:
        return how
    return replace(how, draws=min(asked, how.draws))


def _files_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
