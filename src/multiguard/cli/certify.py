"""`multiguard certify`: what the votes prove, by each method."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

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
_Out = Annotated[
    Path | None, Option(help="The folder to write [certificates next to the votes, or certificates-CONFIG].")
]


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
    from multiguard.evaluate import certify_votes, read_calibration
    from multiguard.evaluate.certification import certify_request
    from multiguard.io.files import check_content, check_inside
    from multiguard.votes import read_votes
    from multiguard.votes.folder import read_source

    whole, source, choice = read_votes(votes), read_source(votes), None
    taken = whole
    if calibration is not None:
        choice = read_calibration(calibration)
        config, taken = _chosen(config, choice.rule), choice.others(whole)
        source["calibration"] = {"left_out": len(whole) - len(taken), "radius": choice.config.radius}
    varied = from_settings(SweepConfig, sweep or (), "--sweep")
    varied.configs(config, taken.provenance)  # a mistake in an option is named before anything about folders
    labels: LabelSource = "pilot" if no_labels else "truth"
    request = certify_request(config, taken, varied, labels)
    folder = out or votes.parent / "certificates"
    if out is None and not force:
        folder = _own_folder(
            folder, config, [*([labels] if no_labels else []), *(["calibrated"] if calibration else [])], request
        )
    check_content(folder, "certificates")
    if folder.parent == votes.parent:
        check_inside(votes.parent, folder)
    more: dict[str, Any] = {"labels": labels, "source": source, "command": typed_command(), "force": force}
    with progress_bar("steps") as progress:
        written = certify_votes(config, taken, sweep=varied, out=folder, progress=progress, **more)
    if choice is not None:
        echo(f"{len(whole) - len(taken)} images chose {choice.rule.text}, and are not certified")
    _show(written)
    echo(f"certificates.parquet and curves.csv: {folder}")


def _show(written: "Results") -> None:
    """Print the scores, and what they mean."""
    from multiguard.cli.score_table import show_scores
    from multiguard.report.words import promises

    show_scores(written, PlainConsole())
    if (reason := _why_nothing(written)) is not None:
        echo(f"\nnote: {reason}")
    echo(f"\n{fill(promises(written), 80)}")


def _why_nothing(written: "Results") -> str | None:
    """Why every certified number is 0, if the draws are too few to prove anything at all; None if they are not."""
    from multiguard.certify.radii import largest_radius, nothing_words

    proved = written.certificates
    draws, labels = max(proved.draws, default=0), len(proved.label_names)
    rule, alpha, method = proved.config.rule, proved.config.alpha, proved.methods[0]
    if draws == 0 or method not in ("joint", "coupled", "betting"):
        return None
    if largest_radius(draws, rule, labels, proved.noise, alpha, method) >= 0:
        return None
    return nothing_words(draws, rule, labels, alpha, method)


def _chosen(config: CertifyConfig, rule: "Rule") -> CertifyConfig:
    """The config with the rule of a calibration; a rule of its own is refused."""
    for name in ("k", "k_prime", "threshold"):
        if getattr(config, name) is not None:
            raise InvalidInputError(f"{name} is given with a calibration, whose rule is {rule}; leave out one of them")
    return config.with_rule(rule)


def _own_folder(folder: Path, config: CertifyConfig, more: Sequence[str], request: dict[str, Any]) -> Path:
    """The folder with the config in its name, if certificates of another config are there already."""
    from multiguard.evaluate.certificate_files import CERTIFICATES_NAME
    from multiguard.io.writer import holds_other

    if not holds_other(folder / CERTIFICATES_NAME, request):
        return folder
    left_out = {"alpha": CertifyConfig().alpha, "n": None}
    values = {name: value for name, value in config.parameters.items() if left_out.get(name, 0) != value}
    words = [f"{name.replace('_', '-')}-{value:g}" for name, value in values.items()]
    return folder.with_name("-".join((folder.name, *words, *config.methods, *more)))
