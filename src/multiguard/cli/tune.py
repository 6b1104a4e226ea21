"""`multiguard tune`: k' or the threshold, and one of several models, chosen on images that are then left out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from multiguard.cli.options import Fields, Force, with_options
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import PlainConsole, echo
from multiguard.pipeline.recipe import CertifyPart

if TYPE_CHECKING:
    from rich.table import Table

    from multiguard.evaluate import Tuned
    from multiguard.pipeline.tune_job import TuneJob, TuneResult

_Votes = Annotated[list[Path], Argument(help="Votes folders of the same images, one per model or noise.")]
_Radius = Annotated[float, Option(help="The radius at which certified scores are compared.")]
_Part = Annotated[
    dict[str, Any],
    Fields(
        CertifyPart,
        only=("k", "alpha", "draws", "methods"),
        help={
            "k": "For top-k: labels that the smoothed classifier returns; k' is tried from 1 to k.",
            "methods": "The method to certify with [joint].",
        },
    ),
]
_Metric = Annotated[str | None, Option(help="recall, precision or f1 [recall; for threshold votes: f1].")]
_Images = Annotated[int | None, Option(help="Tune on a random sample of so many images [half of them].", min=1)]
_Seed = Annotated[int, Option(help="Seed of that sample.", min=0)]
_Out = Annotated[Path | None, Option(help="The record to write [tuned.json beside the first votes folder].")]


@with_options
def tune_command(
    votes: _Votes,
    radius: _Radius,
    part: _Part,
    metric: _Metric = None,
    images: _Images = None,
    seed: _Seed = 0,
    out: _Out = None,
    force: Force = False,
) -> None:
    """Choose k' or the threshold, and the best of several models, for one radius.

    A random half of the images chooses; certify --tuned leaves these out and certifies the others with the choice.
    Top-k votes take --k; votes of sets try every threshold from 0.05 to 0.95.

    Example: multiguard tune runs/votes --k 4 --radius 0.5
    """
    from multiguard.pipeline.tune_job import TuneJob, tune_votes

    given: Any = metric
    where = votes[0].parent / "tuned.json" if out is None else out
    job = TuneJob(tuple(votes), where, radius, CertifyPart(**part), given, images, seed, force)
    with progress_bar("candidates") as progress:
        result = tune_votes(job, lambda done, total: progress("tuning", done, total))
    _show(job, result)


def _show(job: "TuneJob", result: "TuneResult") -> None:
    from multiguard.cli.score_table import noise_text
    from multiguard.io.rounding import plain

    tuned, best = result.tuned, result.tuned.best
    where = best.noise.radius_words(tuned.radius)
    echo(f"{len(tuned.ids)} images choose by their certified {_metric(tuned)} at {where};")
    echo(f"method {tuned.method}, alpha = {plain(tuned.alpha)}\n")
    PlainConsole().print(_table(job, tuned), soft_wrap=False)
    echo(f"\nchosen: {best.rule.text}, {noise_text(best.noise)}")
    if result.others:
        echo(f"certify the other {result.others} images: {result.command}")
    else:
        echo(f"no image is left to certify: vote on others, then {result.command}")
    echo(f"tuned: {job.out}")


def _metric(tuned: "Tuned") -> str:
    return "F1" if tuned.metric == "f1" else tuned.metric


def _table(job: "TuneJob", tuned: "Tuned") -> "Table":
    """All candidates with their scores, rounded down, and intervals, rounded outwards."""
    from decimal import ROUND_CEILING

    from rich.table import Table

    from multiguard.certify.rules import TopK
    from multiguard.evaluate.tuning import INTERVAL
    from multiguard.io.rounding import percent, plain, plain_percent

    several, top_k = len(job.votes) > 1, isinstance(tuned.best.rule, TopK)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in (*(("votes", "noise") if several else ()), "k'" if top_k else "t"):
        table.add_column(head, no_wrap=True)
    table.add_column(f"certified {_metric(tuned)}", justify="right", no_wrap=True)
    table.add_column(f"{plain_percent(INTERVAL)} % interval", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in tuned.candidates:
        value = str(one.rule.k_prime) if isinstance(one.rule, TopK) else plain(one.rule.t)
        votes = (str(job.votes[one.votes]), str(one.noise)) if several else ()
        interval = f"{percent(one.low)} to {percent(one.high, ROUND_CEILING)}"
        table.add_row(*votes, value, percent(one.score), interval, "chosen" if one == tuned.best else "")
    return table
