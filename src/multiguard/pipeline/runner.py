"""A run from a recipe: steps whose inputs have not changed are skipped, and none is done twice."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.evaluate import Results
from multiguard.evaluate.certification import Progress
from multiguard.io.files import read_regular, remove_partial_files, require_folder, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.writer import check_foreign
from multiguard.pipeline.folders import RECORD_FILE, check_content, check_inside
from multiguard.pipeline.recipe import RunRecipe
from multiguard.pipeline.recipe_file import RECIPE_FILE, recipe_text
from multiguard.pipeline.record import (
    Meter,
    RunRecord,
    StepRecord,
    altered_outputs,
    changed_inputs,
    output_hashes,
    read_record,
    write_record,
)
from multiguard.pipeline.steps import KINDS, Kind, Plan, Step

_FILES = (RECIPE_FILE, "model", "votes", "certificates", "arms", "figures", "tables", "report.html")
_HEAD = "# every value of the last run; `multiguard run` takes this file"

SKIPPED = "skipped (unchanged)"


@dataclass(frozen=True)
class Observer:
    """Receives the messages and the progress of a run; by default nobody does.

    >>> Observer(on_step=lambda name, text: print(f"{name}: {text}")).on_step("vote", "running")
    vote: running

    Attributes:
        on_step: Called with a step's name and a message about it.
        on_epoch: Called with the record of each epoch of training.
        bar: Called with the unit that is counted; opens a progress bar and gives the function that moves it.
        stopping: Opened around work that can stop early; gives a function that says whether to stop.
    """

    on_step: Callable[[str, str], None] = lambda name, text: None
    on_epoch: Callable[[dict[str, Any]], None] = lambda record: None
    bar: Callable[[str], AbstractContextManager[Progress]] = lambda unit: nullcontext(lambda *counts: None)
    stopping: Callable[[], AbstractContextManager[Callable[[], bool]]] = lambda: nullcontext(lambda: False)


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run has done."""

    record: RunRecord  # the steps, with their files and costs
    certificates: Results | None  # the main certificates; None if the run stopped before them


def run_recipe(
    recipe: RunRecipe,
    out: Path,
    *,
    until: Kind = "report",
    force: bool = False,
    command: str = "",
    observer: Observer | None = None,
) -> RunResult:
    r"""Make everything that the recipe asks for in the folder; what an earlier run made from the same inputs is kept.

    A run that was killed resumes when it is called again. A model or votes with other inputs are never replaced without
    `force`; certificates and the report are made again as needed.

    >>> from multiguard.pipeline import parse_recipe
    >>> text = "data: {name: digits}\nsigma: 0.5\nmodel: runs/digits\ncertify: {k: 3, k_prime: 1}"
    >>> run_recipe(parse_recipe(text, "mine.yaml"), Path("runs/mine"), until="train")
    Traceback (most recent call last):
        ...
    multiguard.errors.InvalidInputError: until train, but the recipe names a model: its first step is vote

    Args:
        recipe: What to do.
        out: The run folder.
        until: The last step to do.
        force: Whether an old model and old votes with other inputs may be removed.
        command: The command line, for the record.
        observer: Who receives messages and progress.
    """
    from multiguard.pipeline.train_job import resolve_recipe

    if until == "train" and recipe.train is None:
        raise InvalidInputError("until train, but the recipe names a model: its first step is vote")
    recipe = resolve_recipe(recipe)
    _check_own(out, force=force)
    plan = Plan(recipe, out, command)
    steps = [step for step in plan.steps() if KINDS.index(step.kind) <= KINDS.index(until)]
    check_inside(out, *(step.home for step in plan.steps()))
    with folder_lock(out):
        remove_partial_files(out, lambda name: name in (RECORD_FILE, RECIPE_FILE))
        runner = _Runner(plan, force, observer or Observer())
        for step in steps:
            runner.take(step)
        if until in ("certify", "report"):
            runner.finish()
            return RunResult(runner.record, plan.certificates(plan.arms[""]))
    return RunResult(runner.record, None)


class _Runner:
    """Takes one step after the other and keeps the record."""

    def __init__(self, plan: Plan, force: bool, observer: Observer) -> None:
        self._plan, self._out, self._force, self._observer = plan, plan.out, force, observer
        self.record = replace(read_record(plan.out), command=plan.command)
        self._written = b""  # the recipe as this run has written it

    def take(self, step: Step) -> None:
        """Do the step, or skip it if it was finished with the same inputs and its output is intact."""
        inputs = step.inputs()
        before = self.record.steps.get(step.name)
        lost = [] if before is None else altered_outputs(self._out, before)
        changes = {} if before is None else _changes(step, before, inputs)
        if before is not None and before.finished and not (lost or changes or step.unfinished()):
            self._skip(step, before, inputs)
            return
        if step.costly and (step.holds_work() if changes else self._force and not lost and step.is_damaged()):
            self._discard(step, changes)
        if changes and step.renew(changes):
            inputs = step.inputs()
        for name in lost:
            (self._out / name).unlink(missing_ok=True)
        self._observer.on_step(step.name, _reason(step, before, changes, lost))
        resumes = before is not None and step.costly and not changes
        self._do(step, (before if before is not None and resumes else StepRecord(inputs)).started(inputs))

    def finish(self) -> None:
        """Record that the recipe was followed to its last certificate, if that is not recorded yet."""
        path = self._out / RECIPE_FILE
        if self.record.certified and path.is_file() and read_regular(path) == self._recipe():
            return
        self._start()
        self._keep(replace(self.record, certified=True))

    def _skip(self, step: Step, before: StepRecord, inputs: Mapping[str, Any]) -> None:
        """Skip the step; inputs that look different but have the same outcome are recorded as they are now."""
        self._observer.on_step(step.name, SKIPPED)
        if changed_inputs(before.inputs, inputs):
            self._keep(self.record.with_step(step.name, replace(before, inputs=inputs)))

    def _discard(self, step: Step, changes: Mapping[str, str]) -> None:
        if not self._force:
            raise InvalidInputError(
                f"{step.home} was made with other inputs: {'; '.join(changes.values())}. "
                "--force makes it again, or name another run folder"
            )
        step.discard()

    def _do(self, step: Step, started: StepRecord) -> None:
        self._start()
        self._keep(self.record.with_step(step.name, started))
        meter = Meter()
        try:
            outputs = step.run(self._observer)
        except BaseException:  # an interruption has taken its time, too
            with suppress(OSError):
                self._keep(self.record.with_step(step.name, started.with_cost(meter.read())))
            raise
        done = started.with_cost(meter.read())
        self._keep(self.record.with_step(step.name, replace(done, outputs=output_hashes(self._out, outputs))))

    def _start(self) -> None:
        """Write the recipe before a step that changes anything; it has not been followed yet."""
        if (recipe := self._recipe()) == self._written:
            return
        require_folder(self._out)
        self._keep(replace(self.record, certified=False, command=self._plan.command))
        write_atomically(self._out / RECIPE_FILE, lambda file: file.write(recipe))
        self._written = recipe

    def _recipe(self) -> bytes:
        """The text of the recipe; a step may renew its noise seed."""
        return f"{_HEAD}\n{recipe_text(self._plan.recipe)}".encode()

    def _keep(self, record: RunRecord) -> None:
        self.record = record
        write_record(self._out, record)


def _changes(step: Step, before: StepRecord, inputs: Mapping[str, Any]) -> dict[str, str]:
    """The inputs that have changed since the step was started, if the old output is not valid for the new ones."""
    changes = changed_inputs(before.inputs, inputs)
    return {} if step.still_valid(changes.keys()) else changes


def _reason(step: Step, before: StepRecord | None, changes: Mapping[str, str], lost: list[str]) -> str:
    """Why the step is done now."""
    if before is None:
        return "running"
    if changes:
        return f"running again: {'; '.join(changes.values())}"
    if not before.finished:
        return "resuming after an interruption"
    if not lost:
        return f"resuming: {step.unfinished()}"
    return f"running again: {', '.join(lost[:3])} {'is' if len(lost) == 1 else 'are'} missing or altered"


def _check_own(out: Path, *, force: bool) -> None:
    """Raises unless the folder is a run's, or holds nothing under the names that a run writes; none leads away.

    A folder that holds other files becomes a run's only with `force`.
    """
    check_content(out, "a run")
    check_inside(out, *(out / name for name in (*_FILES, "cache")))
    if (out / RECORD_FILE).is_file():
        return
    for name in _FILES:
        if (out / name).exists():
            raise InvalidInputError(f"{out / name} exists, but {out} is not a run folder; name another with --out")
    if not force:
        check_foreign([out], lambda path: False)
