"""`multiguard certify`: what the votes prove, by each method."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from multiguard.certify.rules import RuleName
from multiguard.cli.options import Fields, Force, typed_command, with_options
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import PlainConsole, echo
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name
from multiguard.pipeline.recipe import CertifyPart
from multiguard.smooth.config import VoteConfig

if TYPE_CHECKING:
    from multiguard.pipeline.certify_job import CertifyJob
    from multiguard.results import Results

_Votes = Annotated[Path, Argument(help="The votes folder.")]
_Rule = Annotated[dict[str, Any], Fields(VoteConfig, only=("rule",), help={"rule": "The rule [that of the votes]."})]
_NoLabels = Annotated[bool, Option("--no-labels", help="Certify the labels that the pilot draws chose.")]
_Sweep = Annotated[
    list[str] | None,
    Option(help="Vary k, k_prime, threshold, n or alpha, as in k=1,3,5; repeat for several.", metavar="NAME=VALUES"),
]
_Tuned = Annotated[
    Path | None, Option(help="A record of tune: certify with its choice, without the images that made it.")
]
_Out = Annotated[
    Path | None, Option(help="The folder to write [certificates beside the votes, or certificates-CONFIG].")
]

_VARIED = ("k", "k_prime", "threshold", "n", "alpha")


@with_options
def certify_command(
    votes: _Votes,
    part: CertifyPart,
    rule: _Rule,
    no_labels: _NoLabels = False,
    sweep: _Sweep = None,
    tuned: _Tuned = None,
    out: _Out = None,
    force: Force = False,
) -> None:
    """Certify the votes of every image and average certified recall, precision and F1 over radii.

    Top-k votes take --k and --k-prime; votes of sets take --threshold. A sweep holds point by point: alpha does not
    cover its best point if that is picked afterwards.

    Example: multiguard certify runs/votes --k 4 --k-prime 2 --method all --out runs/certificates
    """
    from multiguard.evaluate.certifier import every_method
    from multiguard.pipeline.certify_job import CertifyJob, certify, with_choice, with_own_folder
    from multiguard.results import read_tuned
    from multiguard.votes.shards import open_manifest

    opened = open_manifest(votes)
    run = opened.manifest.provenance
    job = CertifyJob(
        votes,
        out or votes.parent / "certificates",
        part,
        rule.get("rule") or _meant(part) or run.rule,
        labels="pilot" if no_labels else "truth",
        vary=_varied(sweep or ()),
        command=typed_command(),
        force=force,
    )
    if tuned is not None:
        job = with_choice(job, read_tuned(tuned))
    if "all" in part.methods:
        every = every_method(job.part.config(job.rule).rule, run, part.draws or run.draws)
        methods = tuple(dict.fromkeys((*every, *(method for method in part.methods if method != "all"))))
        job = replace(job, part=job.part.replace(methods=methods))
    if out is None:
        job = with_own_folder(job, opened.sha256)
    with progress_bar("steps") as progress:
        written = certify(job, progress, opened=opened)
    _show(job, written)


def _show(job: "CertifyJob", written: "Results") -> None:
    """Print the scores, and what they mean."""
    from multiguard.cli.score_table import show_scores
    from multiguard.pipeline.certify_job import why_nothing
    from multiguard.report.words import closing_sentence

    if job.tuned is not None:
        left_out = written.source["tuned"]["left_out"]
        echo(f"{left_out} images chose {job.tuned.best.rule.text}, and are not certified")
    show_scores(written, PlainConsole())
    if (reason := why_nothing(written)) is not None:
        echo(f"\nnote: {reason}")
    echo(f"\n{fill(closing_sentence(written), 80)}")
    echo(f"certificates.parquet, curves.csv and labels.csv: {job.out}")


def _meant(part: CertifyPart) -> RuleName | None:
    """The rule that the options belong to; None where there are none, or those of both."""
    top_k, threshold = part.k is not None or part.k_prime is not None, part.threshold is not None
    return None if top_k == threshold else "top-k" if top_k else "threshold"


def _varied(sweeps: Sequence[str]) -> dict[Any, list[float]]:
    """The values of each parameter; a parameter that is named again adds to them."""
    vary: dict[Any, list[float]] = {}
    for text in sweeps:
        name, _, values = text.partition("=")
        if name not in _VARIED:
            raise InvalidInputError(unknown_name("parameter of a sweep", name, _VARIED))
        kind = float if name in ("alpha", "threshold") else int
        try:
            vary.setdefault(name, []).extend(kind(word) for word in values.split(","))
        except ValueError:
            raise InvalidInputError(f"--sweep {text}: expected numbers, as in k=1,3,5 or alpha=0.01,0.1") from None
    return vary
