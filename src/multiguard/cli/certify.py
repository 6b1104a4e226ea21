"""`multiguard certify`: what the votes prove, by each method."""

from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from multiguard.cli.console import PlainConsole, echo, progress_bar
from multiguard.cli.options import Fields, Force, from_settings, typed_command, with_options
from multiguard.errors import InvalidInputError
from multiguard.evaluate.config import CertifyConfig, SweepConfig

if TYPE_CHECKING:
    from multiguard.certify import Rule
    from multiguard.evaluate import LabelSource, Results

_Votes = Annotated[Path, Argument(help="The votes folder.")]
_Config = Annotated[CertifyConfig, Fields(("k", "k_prime", "threshold", "alpha", "draws", "methods"))]
_NoLabels = Annotated[bool, Option("--no-labels", help="Certify the labels that the pilot draws chose.")]
_Sweep = Annotated[
    list[str] | None,
    Option(help="Vary k, k_prime, threshold, n or alpha, as in k=1,3,5; repeat for several.", metavar="NAME=VALUES"),
]
_Calibration = Annotated[
    Path | None, Option(help="A calibration: certify its rule, without the images that it was made from.")
]
_Out = Annotated[Path | None, Option(help="The folder to write [certificates next to the votes].")]


@with_options
def certify_command(
    votes: _Votes,
    config: _Config,
    no_labels: _NoLabels = False,
    sweep: _Sweep = None,
    calibration: _Calibration = None,
    out: _Out = None,
    force: Force = False,
) -> None:
    """Certify the votes of every image and average certified recall, precision and F1 over radii.

    Top-k votes take --k and --k-prime; votes of sets take --threshold. A sweep holds point by point: alpha does not
    cover its best point if that is picked afterwards.

    Example: multiguard certify runs/votes --k 4 --k-prime 2 --method all --out runs/certificates
    """
    from multiguard.cli.score_table import show_scores
    from multiguard.evaluate import certify_votes, read_calibration
    from multiguard.io.files import check_inside
    from multiguard.report.words import promises
    from multiguard.votes import read_votes
    from multiguard.votes.folder import read_source

    whole, source, choice = read_votes(votes), read_source(votes), None
    taken = whole
    if calibration is not None:
        choice = read_calibration(calibration)
        config, taken = _chosen(config, choice.rule), choice.others(whole)
        source["calibration"] = {"left_out": len(whole) - len(taken), "radius": choice.config.radius}
    varied = from_settings(SweepConfig, sweep or (), "--sweep")
    labels: LabelSource = "pilot" if no_labels else "truth"
    folder = out or votes.parent / "certificates"
    if folder.parent == votes.parent:
        check_inside(votes.parent, folder)
    prove = partial(certify_votes, config, taken, sweep=varied, labels=labels, source=source, force=force)
    with progress_bar("steps") as progress:
        written = prove(out=folder, command=typed_command(), progress=progress)
    if choice is not None:
        echo(f"{len(whole) - len(taken)} images chose {choice.rule.text}, and are not certified")
    show_scores(written, PlainConsole())
    if reason := _why_nothing(written):
        echo(f"\nnote: {reason}")
    echo(f"\n{fill(promises(written), 80)}")
    echo(f"certificates.parquet and curves.csv: {folder}")


def _why_nothing(written: "Results") -> str:
    """Why every certified number is 0, if the draws are too few to prove anything at all."""
    from multiguard.certify.radii import largest_radius, nothing_words

    proved = written.certificates
    draws, labels = max(proved.draws, default=0), len(proved.label_names)
    rule, alpha, method = proved.config.rule, proved.config.alpha, proved.methods[0]
    closed = draws and method in ("joint", "coupled", "betting")
    if not closed or largest_radius(draws, rule, labels, proved.noise, alpha, method) >= 0:
        return ""
    return nothing_words(draws, rule, labels, alpha, method)


def _chosen(config: CertifyConfig, rule: "Rule") -> CertifyConfig:
    """The config with the rule of a calibration; a rule of its own is refused."""
    for name in ("k", "k_prime", "threshold"):
        if getattr(config, name) is not None:
            raise InvalidInputError(f"{name} is given with a calibration, whose rule is {rule}; leave out one of them")
    return config.with_rule(rule)
