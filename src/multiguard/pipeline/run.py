"""A whole run from a recipe: steps whose inputs have not changed are skipped, none is done twice."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import require_folder, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.pipeline.cost import Meter
from multiguard.pipeline.parsing import RECIPE_FILE, recipe_text
from multiguard.pipeline.places import require_inside, require_no_other
from multiguard.pipeline.recipe import RunRecipe
from multiguard.pipeline.record import (
    RECORD_FILE,
    RunRecord,
    StepRecord,
    altered,
    changed,
    output_hashes,
    read_record,
    write_record,
)
from multiguard.pipeline.steps import KINDS, Arm, CertifyStep, Kind, ReportStep, Step, TrainStep, VoteStep
from multiguard.pipeline.watching import Watcher

_OURS = (RECIPE_FILE, "model", "votes", "certificates", "arms", "figures", "tables", "report.html")
_HEAD = "# every value of the run last asked for; `multiguard run` takes this file"

SKIPPED = "skipped, for nothing that it reads has changed"  # what is said of a step that is not done


def run_recipe(
    recipe: RunRecipe,
    out: Path,
    *,
    until: Kind = "report",
    force: bool = False,
    command: str = "",
    watcher: Watcher | None = None,
) -> RunRecord:
    """Everything that the recipe asks for lies in the folder, made now or found unchanged from an earlier run.

    A run that was killed goes on when it is called again. A model or votes whose inputs have changed are never
    replaced without `force`; certificates and the report are made anew as needed.

    Args:
        recipe: What to do.
        out: The run folder.
        until: The last step to do.
        force: Whether an old model and old votes may be thrown away.
        command: What reproduces the run, for the record.
        watcher: Who is told what goes on.
    """
    from multiguard.pipeline.training import resolved_recipe

    if until == "train" and recipe.train is None:
        raise InvalidInputError("until train, but the recipe names a model: its first step is vote")
    recipe = resolved_recipe(recipe)
    _require_own(out)
    require_inside(out, *(step.home for step in plan_steps(recipe, out, command)))
    with folder_lock(out):
        runner = _Runner(recipe, out, force, command, watcher or Watcher())
        for step in plan_steps(recipe, out, command):
            if KINDS.index(step.kind) <= KINDS.index(until):
                runner.take(step)
        if until in ("certify", "report"):
            runner.finish()
    return runner.record


def plan_arms(recipe: RunRecipe, out: Path) -> dict[str, Arm]:
    """The lines of a run by name: the main one under the empty name, then one for each further sigma and noise."""
    lines: dict[str, tuple[float, float | None]] = {
        f"sigma-{_text(sigma)}": (sigma, None) for sigma in recipe.sweep.sigma if sigma != recipe.sigma
    }
    for noise in recipe.sweep.training_noise:
        lines[f"training-noise-{_text(noise)}"] = (recipe.sigma, noise)
    arms = {name: Arm(name, out / "arms" / name, *line) for name, line in lines.items()}
    return {"": Arm("", out, recipe.sigma), **arms}


def plan_steps(recipe: RunRecipe, out: Path, command: str = "") -> Iterator[Step]:
    """The steps of a run in order: each line from model to certificates, the report at the end."""
    arms = plan_arms(recipe, out)
    for arm in arms.values():
        if recipe.train is not None:
            yield TrainStep(recipe, recipe.train, out, arm)
        yield VoteStep(recipe, arm, command)
        yield CertifyStep(recipe, arm, command)
    yield ReportStep(recipe, out, arms, command)


def _text(number: float) -> str:
    """The number as a folder can be named after it; no two numbers share a text."""
    return repr(float(number)).removesuffix(".0")


class _Runner:
    """Takes step after step, and keeps the record as it goes."""

    def __init__(self, recipe: RunRecipe, out: Path, force: bool, command: str, watcher: Watcher) -> None:
        self._out, self._force, self._watcher = out, force, watcher
        self.record = replace(read_record(out), command=command)
        self._begun = False
        self._recipe = f"{_HEAD}\n{recipe_text(recipe)}".encode()

    def take(self, step: Step) -> None:
        """Do the step, or skip it where it has been done with the same inputs and its output is whole."""
        inputs = step.inputs()
        before = self.record.steps.get(step.name)
        lost = [] if before is None else altered(self._out, before)
        changes = [] if before is None else _changes(step, before, inputs)
        if before is not None and before.ended and not (lost or changes or step.unsettled()):
            self._skip(step, before, inputs)
            return
        if step.costly and (step.holds_work() if changes else self._force and not lost and step.is_damaged()):
            self._throw_away(step, changes)
        for name in lost:
            (self._out / name).unlink(missing_ok=True)
        self._watcher.on_step(step.name, _reason(step, before, changes, lost))
        goes_on = before is not None and step.costly and not changes
        self._do(step, (before if before is not None and goes_on else StepRecord(inputs)).begun_again(inputs))

    def _skip(self, step: Step, before: StepRecord, inputs: Mapping[str, Any]) -> None:
        """Say that the step is not done; inputs that only look otherwise are put down, to look like it no more."""
        self._watcher.on_step(step.name, SKIPPED)
        if changed(before.inputs, inputs):
            self._keep(step.name, replace(before, inputs=inputs))

    def finish(self) -> None:
        """Put down that the recipe was followed to its last certificate, unless that is known."""
        path = self._out / RECIPE_FILE
        if self.record.certified and path.is_file() and path.read_bytes() == self._recipe:
            return
        self._begin()
        self._mark(certified=True)

    def _throw_away(self, step: Step, changes: list[str]) -> None:
        if not self._force:
            raise InvalidInputError(
                f"{step.home} was made with other inputs: {'; '.join(changes)}. "
                "--force makes it anew, or name another run folder"
            )
        step.discard()

    def _do(self, step: Step, begun: StepRecord) -> None:
        self._begin()
        self._keep(step.name, begun)
        meter = Meter()
        try:
            outputs = step.do(self._watcher)
        except BaseException:  # an interruption, too, has taken its time
            with suppress(OSError):
                self._keep(step.name, begun.having_taken(meter.read()))
            raise
        done = begun.having_taken(meter.read())
        self._keep(step.name, replace(done, outputs=output_hashes(self._out, outputs)))

    def _begin(self) -> None:
        """Write the recipe down before the first step that changes anything; it has not been followed yet."""
        if self._begun:
            return
        require_folder(self._out)
        self._mark(certified=False)
        write_atomically(self._out / RECIPE_FILE, lambda file: file.write(self._recipe))
        self._begun = True

    def _mark(self, *, certified: bool) -> None:
        self.record = replace(self.record, certified=certified)
        write_record(self._out, self.record)

    def _keep(self, name: str, step: StepRecord) -> None:
        self.record = self.record.with_step(name, step)
        write_record(self._out, self.record)


def _changes(step: Step, before: StepRecord, inputs: Mapping[str, Any]) -> list[str]:
    """What has changed since the step was last begun, in words, and tells against what lies there."""
    changes = changed(before.inputs, inputs)
    return [] if step.stands(changes.keys()) else list(changes.values())


def _reason(step: Step, before: StepRecord | None, changes: list[str], lost: list[str]) -> str:
    """That a step is done now, and why, in words."""
    if before is None:
        return "running for the first time"
    if changes:
        return f"running, for {'; '.join(changes)}"
    if not before.ended:
        return "going on where it was interrupted"
    if not lost:
        return f"going on, for {step.unsettled()}"
    return f"running, for {', '.join(lost[:3])} {'is' if len(lost) == 1 else 'are'} gone or altered"


def _require_own(out: Path) -> None:
    """Pass only if the folder is a run's, or holds nothing under the names that a run would write; none leads away."""
    require_no_other(out, "a run")
    require_inside(out, *(out / name for name in (*_OURS, "cache")))
    if (out / RECORD_FILE).is_file():
        return
    for name in _OURS:
        if (out / name).exists():
            raise InvalidInputError(f"{out / name} is there, but {out} is no run folder; name another with --out")
