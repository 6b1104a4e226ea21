"""A recipe in its run folder: train, vote, calibrate, certify, report. Each step resumes, or finds its work done."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from multiguard.certify.noise import given_noise
from multiguard.data.config import default_split
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate import Results, calibrate, certify_votes
from multiguard.evaluate.calibration import CALIBRATION_NAME, calibration_of_run
from multiguard.io.config import to_tree
from multiguard.io.files import (
    RECORD_FILE,
    check_content,
    check_inside,
    read_regular,
    remove_partial_files,
    require_folder,
    write_atomically,
)
from multiguard.io.lock import folder_lock
from multiguard.io.records import encode_json
from multiguard.io.writer import check_foreign
from multiguard.models.config import ModelConfig
from multiguard.models.spec import parse_spec
from multiguard.report import report
from multiguard.run.arms import Arm, RunRecord, plan_arms, read_record
from multiguard.run.recipe import RECIPE_FILE, Recipe, recipe_text
from multiguard.smooth.config import VoteConfig
from multiguard.train.config import TrainConfig
from multiguard.votes import Votes
from multiguard.votes.folder import read_source, with_seeds
from multiguard.votes.shards import load_manifest

Kind = Literal["train", "vote", "calibrate", "certify", "report"]
KINDS: tuple[Kind, ...] = get_args(Kind)
T = TypeVar("T")
Progress = Callable[[str, int, int], None]

SKIPPED = "skipped (unchanged)"
_FILES = (RECIPE_FILE, "model", "votes", "certificates", "arms", "figures", "tables", "report.html", CALIBRATION_NAME)
_HEAD = "# every value of the last run; `multiguard run` takes this file"


@dataclass(frozen=True)
class Observer:
    """Receives the messages and the progress of a run; by default they go nowhere.

    >>> Observer(on_step=lambda name, text: print(f"{name}: {text}")).on_step("vote", "running")
    vote: running
    """

    on_step: Callable[[str, str], None] = lambda name, text: None  # a step's name, and a message about it
    on_time: Callable[[str, float], None] = lambda name, seconds: None  # its seconds, if there was anything to do
    on_epoch: Callable[[dict[str, Any]], None] = lambda record: None  # the record of each epoch of training
    # Opens a progress bar of this unit, and gives the function that moves it.
    bar: Callable[[str], AbstractContextManager[Progress]] = lambda unit: nullcontext(lambda *counts: None)
    # Is opened around work that can stop early, and gives a function that says whether to stop.
    stopping: Callable[[], AbstractContextManager[Callable[[], bool]]] = lambda: nullcontext(lambda: False)


def run(
    recipe: Recipe,
    *,
    out: Path,
    until: Kind = "report",
    force: bool = False,
    command: str = "",
    observer: Observer | None = None,
) -> Results | None:
    r"""Make everything that the recipe asks for in the folder; what an earlier run made from the same inputs is kept.

    A run that was killed resumes when it is called again. A model or votes with other inputs are never replaced without
    `force`; certificates and the report are made again as needed. Returns the main certificates, if it comes to them.
    `until` is the last step to do, and `command` the command line, for the record.

    >>> from multiguard.run import parse_recipe, run
    >>> text = "data: {name: digits}\nsigma: 0.5\nmodel: runs/digits\ncertify: {k: 3, k_prime: 1}"
    >>> run(parse_recipe(text, "mine.yaml"), out=Path("runs/mine"), until="train")
    Traceback (most recent call last):
        ...
    multiguard.errors.InvalidInputError: until is train, but the recipe names a model: its first step is vote
    """
    if until == "train" and recipe.train is None:
        raise InvalidInputError("until is train, but the recipe names a model: its first step is vote")
    if until == "calibrate" and recipe.calibrate is None:
        raise InvalidInputError("until is calibrate, but the recipe has no section of that name; add one")
    recipe = _filled(recipe)
    arms = plan_arms(recipe, out)
    if not recipe.data.unlisted:
        recipe.require_labels(len(recipe.data.open().label_names))
    _check_own(out, force=force)
    for arm in arms.values():
        check_inside(out, arm.home, arm.home / "model", arm.home / "votes", arm.certificates)
    with folder_lock(out):
        remove_partial_files(out, lambda name: name in (RECORD_FILE, RECIPE_FILE))
        _begin(out, _seeded(recipe, _voted_seed(out)), command)
        steps = _Steps(recipe, out, KINDS.index(until), force, command, observer or Observer())
        results = {name: found for name, arm in arms.items() if (found := steps.take(arm)) is not None}
        if not results:
            return None
        if not read_record(out).certified:
            _write_record(out, RunRecord(steps.command, certified=True))
        if until == "report":
            steps.report(results)
    return results[""]


class _Steps:
    """The steps of a run, in order."""

    def __init__(self, recipe: Recipe, out: Path, last: int, force: bool, command: str, observer: Observer) -> None:
        self._recipe, self._out, self._last, self._force = recipe, out, last, force
        self._command, self._observer = command, observer
        self._noise_seed = recipe.vote.noise_seed  # of all arms: that of the main one, if the recipe names none

    @property
    def command(self) -> str:
        """The command line with both seeds named, which makes the run again; empty if it is not known."""
        command, seed = self._command, self._noise_seed
        return command if seed is None else with_seeds(command, seed=self._recipe.data.seed, noise_seed=seed)

    def take(self, arm: Arm) -> Results | None:
        """The certificates of an arm, after its steps up to the last one."""
        model = self._recipe.model or self._train(arm)
        votes = self._vote(arm, model) if self._last >= KINDS.index("vote") else None
        if votes is not None and not arm.name and self._last >= KINDS.index("calibrate"):
            self._calibrate(arm, votes)
        return self._certify(arm, votes) if votes is not None and self._last >= KINDS.index("certify") else None

    def report(self, results: dict[str, Results]) -> None:
        """The page, the figures and the tables of all arms."""
        others = dict(results)
        runs, commands = {"": others.pop("")}, [self.command] if self._command else None
        more: dict[str, Any] = {"others": others, "out": self._out, "commands": commands, "force": True}
        more["calibration"] = calibration_of_run(self._out / "certificates", runs[""])
        made = self._step(
            "report",
            "images",
            lambda progress: report(self._recipe.report, runs, progress=partial(progress, "reporting"), **more),
        )
        for note in made.notes:
            self._observer.on_step("report", note)

    def _train(self, arm: Arm) -> ModelConfig:
        from multiguard.train import train

        home, data = arm.home / "model", self._recipe.data
        assert self._recipe.train is not None
        config = _training(self._recipe.train, arm)
        make = partial(train, config, data, out=home, force=self._force, on_epoch=self._observer.on_epoch)
        self._step(arm.step_name("train"), "images", lambda progress: make(progress=progress))
        if config.model is not None and parse_spec(config.model).kind == "code":
            return ModelConfig(config.model, weights=home)
        return ModelConfig(str(home))

    def _vote(self, arm: Arm, model: ModelConfig) -> Votes:
        from multiguard.smooth.vote import failure_text, mean_draws, vote

        recipe, name = self._recipe, arm.step_name("vote")
        config = sampling(recipe, arm).replace(noise_seed=self._noise_seed)
        data = recipe.data if recipe.model is not None else recipe.data.replace(size=None)
        check_content(arm.home / "votes", "votes")

        def draw(progress: Progress) -> Votes:
            with self._observer.stopping() as stop:
                return vote(
                    config,
                    data,
                    model,
                    noise=arm.noise,
                    target=recipe.certify if config.adaptive else None,
                    out=arm.home / "votes",
                    command=self._command,
                    note=partial(self._observer.on_step, name),
                    progress=partial(progress, "voting"),
                    stop=stop,
                    force=self._force,
                )

        votes = self._step(name, "images", draw)
        if not arm.name:
            self._noise_seed = votes.provenance.noise_seed
            _begin(self._out, _seeded(recipe, self._noise_seed), self.command)
        if (failed := failure_text(votes)) is not None:
            self._observer.on_step(name, failed)
        if config.adaptive:
            self._observer.on_step(name, f"{mean_draws(votes):.1f} draws per image on average")
        return votes

    def _calibrate(self, arm: Arm, votes: Votes) -> None:
        """Set what can be promised; where nothing can, say so, and leave no older promise."""
        config, path = self._recipe.calibrate, arm.home / CALIBRATION_NAME
        if config is None:
            return
        make = partial(calibrate, config, [votes], out=path, force=True)
        try:
            found = self._step("calibrate", "candidates", lambda progress: make(progress=partial(progress, "choosing")))
            self._observer.on_step("calibrate", found.sentence)
        except InvalidInputError as error:
            path.unlink(missing_ok=True)
            self._observer.on_step("calibrate", str(error))

    def _certify(self, arm: Arm, votes: Votes) -> Results:
        make = partial(
            certify_votes,
            self._recipe.certify,
            votes,
            sweep=None if arm.name else self._recipe.sweep.of_votes,
            labels="truth" if self._recipe.data.labelled else "pilot",
            source=read_source(arm.home / "votes"),
            command=self.command or None,
            out=arm.certificates,
            force=True,
        )
        return self._step(arm.step_name("certify"), "steps", lambda progress: make(progress=progress))

    def _step(self, name: str, unit: str, work: Callable[[Progress], T]) -> T:
        """Do the work of a step; its first progress shows that there was something to do."""
        started, began = time.perf_counter(), False
        with self._observer.bar(unit) as bar:

            def progress(doing: str, done: int, total: int) -> None:
                nonlocal began
                if not began:
                    began = True
                    self._observer.on_step(name, "running")
                bar(doing, done, total)

            result = work(progress)
        if not began:
            self._observer.on_step(name, SKIPPED)
        else:
            self._observer.on_time(name, time.perf_counter() - started)
        return result


def _filled(recipe: Recipe) -> Recipe:
    """The recipe with the dataset's defaults in place of what it leaves open."""
    data = recipe.data
    if not data.unlisted:
        split = data.split or default_split(data.name, "test", data.root, data.table)
        recipe = recipe.replace(data=data.replace(split=split))
    return recipe if recipe.train is None else recipe.replace(train=recipe.train.filled(data.name))


def _training(config: TrainConfig, arm: Arm) -> TrainConfig:
    """How an arm is trained: at its noise, validated at that of its votes."""
    trained = arm.trained or given_noise(config.sigma, config.noise) or arm.noise
    validated = given_noise(config.val_sigma, config.val_noise) or arm.noise
    val_noise = None if validated == trained else validated
    return config.replace(noise=trained, val_noise=val_noise, sigma=None, val_sigma=None)


def sampling(recipe: Recipe, arm: Arm) -> VoteConfig:
    """How an arm is sampled: only the main one is swept over n, the others need no more draws than certify uses."""
    config, draws = recipe.vote, recipe.certify.draws
    if config.adaptive or draws is None or not arm.name:
        return config
    return config.replace(draws=min(draws, config.most_draws))


def _voted_seed(out: Path) -> int | None:
    """The noise seed of the votes in a run folder, finished or not; None if there are none."""
    try:
        return load_manifest(out / "votes").provenance.noise_seed
    except VotesError:
        return None


def _seeded(recipe: Recipe, noise_seed: int | None) -> Recipe:
    """The recipe with this noise seed, if it names none."""
    named = recipe.vote.noise_seed is not None
    return recipe if named else recipe.replace(vote=recipe.vote.replace(noise_seed=noise_seed))


def _begin(out: Path, recipe: Recipe, command: str) -> None:
    """Write the recipe before a step that changes anything; unless it is the same, it has not been followed yet."""
    text, path = f"{_HEAD}\n{recipe_text(recipe)}".encode(), out / RECIPE_FILE
    if read_record(out).certified and path.is_file() and read_regular(path) == text:
        return
    require_folder(out)
    _write_record(out, RunRecord(command))
    write_atomically(path, lambda file: file.write(text))


def _write_record(out: Path, record: RunRecord) -> None:
    if record != read_record(out) or not (out / RECORD_FILE).is_file():
        content = encode_json(to_tree(record)) + b"\n"
        write_atomically(out / RECORD_FILE, lambda file: file.write(content))


def _check_own(out: Path, *, force: bool) -> None:
    """Raises unless the folder is a run's, or holds nothing under the names that a run writes; none leads away.

    A folder that holds other files becomes a run's only with `force`.
    """
    check_content(out, "a run")
    check_inside(out, *(out / name for name in _FILES))
    if (out / RECORD_FILE).is_file():
        return
    for name in _FILES:
        if (out / name).exists():
            raise InvalidInputError(f"{out / name} exists, but {out} is not a run folder; name another with --out")
    if not force:
        check_foreign([out], lambda path: False)
