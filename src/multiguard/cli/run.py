"""`multiguard run`: everything from one recipe."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from multiguard.cli.options import typed_command
from multiguard.cli.progress import print_line, progress_bar
from multiguard.cli.signals import graceful_stop
from multiguard.cli.terminal import PlainConsole
from multiguard.cli.vote import FINISHING

if TYPE_CHECKING:
    from multiguard.pipeline import RunRecipe, RunRecord

_Recipe = Annotated[
    str,
    Argument(
        help="A YAML file, or one of digits, digits-figures, digits-threshold, digits-adaptive, digits-l1, "
        "digits-pixels, digits-patch, photos, voc2007, coco, coco-subset, coco-tagger, coco-patch, coco-l1 and nuswide."
    ),
]
_Out = Annotated[Path | None, Option(help="The run folder [runs/NAME-run].")]
_Set = Annotated[
    list[str] | None,
    Option("--set", help="Change the recipe, as in data.root=DIR; repeat for several.", metavar="KEY=VALUE"),
]
_Until = Annotated[str, Option(help="The last step to do: train, vote, certify or report.")]
_Force = Annotated[bool, Option("--force", help="Discard work of other settings, and write beside files of others.")]
_Device = Annotated[str | None, Option(help="Where voting runs, such as cpu or cuda:1 [a GPU, if any].")]
_OUTPUTS = {"train": "model", "vote": "votes", "certify": "certificates", "report": "report.html"}


def run_command(
    recipe: _Recipe = "digits",
    out: _Out = None,
    set_: _Set = None,
    until: _Until = "report",
    force: _Force = False,
    device: _Device = None,
) -> None:
    """Train, vote, certify and report as a recipe says, skipping every step whose inputs have not changed.

    The same command resumes after an interruption.

    Example: multiguard run digits --out runs/digits-run
    """
    from multiguard.pipeline import find_recipe

    folder = out or Path("runs") / f"{Path(recipe).stem}-run"
    _run(find_recipe(recipe, [*(set_ or []), *_on(device)]), folder, until, force)


def _on(device: str | None) -> list[str]:
    """The change of a recipe that names the device."""
    return [] if device is None else [f"vote.device={device}"]


def _run(recipe: "RunRecipe", out: Path, until: str, force: bool) -> None:
    from multiguard.cli.predict import show_predictions
    from multiguard.cli.score_table import show_scores
    from multiguard.cli.train import show_epoch
    from multiguard.models.loading import runs_code
    from multiguard.pipeline import Observer, run_recipe
    from multiguard.pipeline.runner import SKIPPED
    from multiguard.report.words import closing_sentence

    if until not in _OUTPUTS:
        raise typer.BadParameter(f"'{until}' is none of {', '.join(_OUTPUTS)}", param_hint="--until")
    named = recipe.model.spec if recipe.model is not None else recipe.train.model if recipe.train is not None else None
    if named is not None and runs_code(named):
        print_line(f"model: {named} is code that the recipe names; it is imported and called")
    done: dict[str, bool] = {}

    def on_step(step: str, text: str) -> None:
        done[step] = text != SKIPPED
        print_line(f"{step}: {text}")

    observer = Observer(on_step, show_epoch, progress_bar, partial(graceful_stop, FINISHING))
    result = run_recipe(recipe, out, until=until, force=force, command=typed_command(), observer=observer)  # type: ignore[arg-type]
    if result.certificates is not None:
        print_line("")
        show = show_scores if recipe.data.labelled else show_predictions
        show(result.certificates, PlainConsole())
        print_line(f"\n{fill(closing_sentence(result.certificates), 80)}")
    print_line(f"time: {_times(result.record, done)}")
    print_line(f"{until}: {out / _OUTPUTS[until]}")


def _times(record: "RunRecord", done: Mapping[str, bool]) -> str:
    """The time of each kind of step over all its starts and arms; a kind of which none was done now was skipped."""
    seconds: dict[str, list[float]] = {}
    for name, now in done.items():
        times = seconds.setdefault(name.split()[-1], [])
        times += [record.steps[name].seconds or 0.0] if now else []
    return ", ".join(f"{kind} {sum(times):.0f} s" if times else f"{kind} skipped" for kind, times in seconds.items())
