"""`multiguard run` and `multiguard demo`: everything from one recipe."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from multiguard.cli.command import typed
from multiguard.cli.options import one_of
from multiguard.cli.progress import progress_bar, say
from multiguard.cli.scores import show_scores
from multiguard.cli.signals import graceful_stop
from multiguard.cli.terminal import PlainConsole
from multiguard.cli.train import show_epoch
from multiguard.cli.vote import FINISHING

if TYPE_CHECKING:
    from multiguard.pipeline import RunRecord

_Recipe = Annotated[
    str,
    Argument(
        help="A YAML file, or one of digits, digits-figures, digits-threshold, digits-adaptive, "
        "voc2007, coco, coco-subset and nuswide."
    ),
]
_Out = Annotated[Path | None, Option(help="The run folder [runs/NAME-run].")]
_DemoOut = Annotated[Path, Option(help="The run folder.")]
_Set = Annotated[
    list[str] | None,
    Option("--set", help="Change the recipe, as in data.root=DIR; again for more.", metavar="KEY=VALUE"),
]
_Until = Annotated[str, Option(help="The last step to do: train, vote, certify or report.")]
_Force = Annotated[bool, Option("--force", help="Throw away a model or votes that were made with other settings.")]
_Device = Annotated[str | None, Option(help="Where voting runs, such as cpu or cuda:1 [a GPU, if any].")]
_EARLIER = {"report": "report.html", "certify": "certificates", "vote": "votes", "train": "model"}


def run_command(
    recipe: _Recipe = "digits",
    out: _Out = None,
    set_: _Set = None,
    until: _Until = "report",
    force: _Force = False,
    device: _Device = None,
) -> None:
    """Train, vote, certify and report as a recipe says, skipping every step whose inputs have not changed.

    The same command goes on after an interruption.

    Example: multiguard run digits --out runs/digits-run
    """
    _run(recipe, out or Path("runs") / f"{Path(recipe).stem}-run", set_ or [], until, force, device)


def demo_command(out: _DemoOut = Path("runs/demo"), force: _Force = False, device: _Device = None) -> None:
    """Train on handwritten digits, vote, certify with every method and write the report; minutes on a CPU.

    Example: multiguard demo --out runs/demo
    """
    _run("digits", out, [], "report", force, device)


def _run(name: str, out: Path, changes: list[str], until: str, force: bool, device: str | None) -> None:
    from multiguard.models.loading import runs_code
    from multiguard.pipeline import Watcher, find_recipe, run_recipe
    from multiguard.pipeline.run import SKIPPED
    from multiguard.pipeline.steps import KINDS

    one_of("until", until, KINDS)
    recipe = find_recipe(name, [*changes, *([] if device is None else [f"vote.device={device}"])])
    if recipe.model is not None and runs_code(recipe.model.spec):
        say(f"model: {recipe.model.spec} is code that the recipe names; it is imported and called")
    done: dict[str, bool] = {}

    def on_step(name: str, words: str) -> None:
        done[name] = words != SKIPPED
        say(f"{name}: {words}")

    watcher = Watcher(on_step, show_epoch, progress_bar, partial(graceful_stop, FINISHING))
    record = run_recipe(recipe, out, until=until, force=force, command=typed(), watcher=watcher)  # type: ignore[arg-type]
    _show_end(out, until, _taken(record, done))


def _show_end(out: Path, until: str, taken: str) -> None:
    from multiguard.results import read_certificates

    if until in ("certify", "report"):
        say("")
        show_scores(read_certificates(out / "certificates"), PlainConsole())
        say("")
    say(f"took: {taken}")
    say(f"{until}: {out / _EARLIER[until]}")


def _taken(record: "RunRecord", done: Mapping[str, bool]) -> str:
    """How long each kind of step took over all its starts and lines; a kind of which none was done now is skipped."""
    seconds: dict[str, list[float]] = {}
    for name, now in done.items():
        taken = seconds.setdefault(name.split()[-1], [])
        taken += [record.steps[name].seconds or 0.0] if now else []
    return ", ".join(f"{kind} {sum(taken):.0f} s" if taken else f"{kind} skipped" for kind, taken in seconds.items())
