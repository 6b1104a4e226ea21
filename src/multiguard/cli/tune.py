"""`multiguard tune`: k' or the threshold, and one of several models, chosen on images that are then left out."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from multiguard.cli.console import PlainConsole, echo, plain_table, progress_bar
from multiguard.cli.options import Fields, Force, with_options
from multiguard.evaluate.tuning import TuneConfig

if TYPE_CHECKING:
    from rich.table import Table

    from multiguard.evaluate import Tuned

_Votes = Annotated[list[Path], Argument(help="Votes folders of the same images, one per model or noise.")]
_Config = Annotated[TuneConfig, Fields(("radius", "k"))]
_Out = Annotated[Path | None, Option(help="The record to write [tuned.json beside the first votes folder].")]


@with_options
def tune_command(votes: _Votes, config: _Config, out: _Out = None, force: Force = False) -> None:
    """Choose k' or the threshold, and the best of several models, for one radius.

    A random half of the images chooses; certify --tuned leaves these out and certifies the others with the choice.
    Top-k votes take --k; votes of sets try every threshold from 0.05 to 0.95.

    Example: multiguard tune runs/votes --k 4 --radius 0.5
    """
    from multiguard.evaluate import tune
    from multiguard.votes import read_votes

    opened, where = [read_votes(folder) for folder in votes], out or votes[0].parent / "tuned.json"
    with progress_bar("candidates") as progress:
        tuned = tune(config, opened, out=where, force=force, progress=lambda *counts: progress("tuning", *counts))
    _show(votes, tuned)
    left = len(opened[tuned.best.votes]) - len(tuned.ids)
    command = _command(config, where, str(votes[tuned.best.votes]) if left else "VOTES")
    if left:
        echo(f"certify the other {left} images: {command}")
    else:
        echo(f"no image is left to certify: vote on others, then {command}")
    echo(f"tuned: {where}")


def _show(votes: list[Path], tuned: "Tuned") -> None:
    from multiguard.certify.noise import parse_noise
    from multiguard.cli.score_table import noise_text
    from multiguard.io.rounding import plain

    config, noise = tuned.config, parse_noise(tuned.best.noise)
    metric = "F1" if config.metric == "f1" else str(config.metric)
    echo(f"{len(tuned.ids)} images choose by their certified {metric} at {noise.radius_words(config.radius)};")
    echo(f"method {config.method}, alpha = {plain(config.alpha)}\n")
    PlainConsole().print(_table(votes, tuned, metric), soft_wrap=False)
    echo(f"\nchosen: {tuned.best.config.rule.text}, {noise_text(noise)}")


def _command(config: TuneConfig, record: Path, votes: str) -> str:
    """The command that certifies the votes with the choice, otherwise as it was tuned."""
    from multiguard.io.rounding import plain

    words = ["multiguard", "certify", votes, "--tuned", str(record)]
    words += ["--method", config.method] if config.method else []
    words += ["--alpha", plain(config.alpha)] if config.alpha != TuneConfig(radius=0).alpha else []
    words += ["--draws", str(config.draws)] if config.draws is not None else []
    return shlex.join(words)


def _table(folders: list[Path], tuned: "Tuned", metric: str) -> "Table":
    """All candidates with their scores, rounded down, and intervals, rounded outwards."""
    from decimal import ROUND_CEILING

    from multiguard.evaluate.tuning import INTERVAL
    from multiguard.io.rounding import percent, plain, plain_percent

    several, top_k = len(folders) > 1, tuned.best.config.rule.ranked
    heads = (*(("votes", "noise") if several else ()), "k'" if top_k else "t")
    table = plain_table(*heads, right=[f"certified {metric}"])
    for head in (f"{plain_percent(INTERVAL)} % interval", ""):
        table.add_column(head, no_wrap=True)
    for one in tuned.candidates:
        value = str(one.config.k_prime) if top_k else plain(one.config.rule.t or 0)
        votes = (str(folders[one.votes]), one.noise) if several else ()
        interval = f"{percent(one.low)} to {percent(one.high, ROUND_CEILING)}"
        table.add_row(*votes, value, percent(one.score), interval, "chosen" if one == tuned.best else "")
    return table
