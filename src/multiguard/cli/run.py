"""`multiguard run`: everything from one recipe."""

from collections import defaultdict
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer
from typer import Argument, Option

from multiguard.cli.console import PlainConsole, print_line, progress_bar
from multiguard.cli.options import typed_command
from multiguard.cli.signals import graceful_stop
from multiguard.cli.vote import FINISHING

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
_Until = Annotated[str, Option(help="The last step to do: train, vote, calibrate, certify or report.")]
_Force = Annotated[bool, Option("--force", help="Discard work of other settings, and write next to files of others.")]
_MOST_SHOWN = 12  # images without labels whose predictions are printed
_OUTPUTS = {
    "train": "model",
    "vote": "votes",
    "calibrate": "calibration.json",
    "certify": "certificates",
    "report": "report.html",
}


def run_command(
    recipe: _Recipe = "digits", out: _Out = None, set_: _Set = None, until: _Until = "report", force: _Force = False
) -> None:
    """Train, vote, calibrate, certify and report as a recipe says, skipping every step whose inputs have not changed.

    The same command resumes after an interruption.

    Example: multiguard run digits --out runs/digits-run
    """
    from multiguard.cli.predict import show_predictions
    from multiguard.cli.score_table import show_scores
    from multiguard.cli.train import show_epoch
    from multiguard.models.loading import runs_code
    from multiguard.report.words import promises
    from multiguard.run import Observer, find_recipe, run

    if until not in _OUTPUTS:
        raise typer.BadParameter(f"'{until}' is none of {', '.join(_OUTPUTS)}", param_hint="--until")
    found, out = find_recipe(recipe, set_ or []), out or Path("runs") / f"{Path(recipe).stem}-run"
    named = found.model.spec if found.model else found.train.model if found.train else None
    if named is not None and runs_code(named):
        print_line(f"model: {named} is code that the recipe names; it is imported and called")
    seconds = defaultdict[str, float](float)

    def on_step(step: str, text: str) -> None:
        print_line(f"{step}: {text}")

    def on_time(step: str, taken: float) -> None:
        seconds[step.split()[-1]] += taken

    said = Observer(on_step, on_time, show_epoch, progress_bar, partial(graceful_stop, FINISHING))
    results = run(found, out=out, until=until, force=force, command=typed_command(), observer=said)  # type: ignore[arg-type]
    if results is not None:
        print_line("")
        if not found.data.labelled and len(results.certificates.ids) <= _MOST_SHOWN:
            show_predictions(results, PlainConsole())
            print_line("")
        show_scores(results, PlainConsole())
        print_line(f"\n{fill(promises(results), 80)}")
    if seconds:
        print_line(f"time: {', '.join(f'{kind} {taken:.0f} s' for kind, taken in seconds.items())}")
    print_line(f"{until}: {out / _OUTPUTS[until]}")
