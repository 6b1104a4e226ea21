"""`multiguard certify`: what the votes prove, for every method asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from multiguard.cli.command import typed
from multiguard.cli.options import Force, one_of
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import PlainConsole, echo
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

_Votes = Annotated[Path, Argument(help="The votes folder.")]
_K = Annotated[int | None, Option(help="How many labels the smoothed classifier returns.")]
_KPrime = Annotated[int | None, Option(help="How many labels the model returns for a noisy copy.")]
_Threshold = Annotated[
    float | None, Option(help="The share of noisy copies from which on a label is returned, in place of k and k'.")
]
_Rule = Annotated[str, Option(help="The rule of the votes: top-k or threshold.")]
_NoLabels = Annotated[
    bool, Option("--no-labels", help="Certify the labels that the pilot draws chose, not the true ones.")
]
_Alpha = Annotated[float, Option(help="The probability of a wrong certificate of an image.")]
_Draws = Annotated[int | None, Option(help="Use the first so many draws [all; adaptive votes: always all].")]
_Method = Annotated[
    list[str] | None,
    Option(
        help="joint, paper, independent, jia or cohen; again for more; all for the first four. "
        "Of a threshold: joint, independent or all [joint]."
    ),
]
_Sweep = Annotated[
    list[str] | None,
    Option(help="Vary k, k_prime, threshold, n or alpha, as in k=1,3,5; again for more.", metavar="NAME=VALUES"),
]
_To = Annotated[float | None, Option(help="The largest radius of the curves [3 sigma].")]
_Step = Annotated[float | None, Option(help="The step between two radii [sigma / 20].")]
_Bands = Annotated[float | None, Option(help="Add bootstrap bands over images at this level, such as 0.95.")]
_Out = Annotated[Path | None, Option(help="The certificates folder to write [certificates beside the votes].")]

_ALL = {"top-k": ("joint", "paper", "independent", "jia"), "threshold": ("joint", "independent")}
_VARIED = ("k", "k_prime", "threshold", "n", "alpha")


def certify_command(
    votes: _Votes,
    k: _K = None,
    k_prime: _KPrime = None,
    rule: _Rule = "top-k",
    threshold: _Threshold = None,
    no_labels: _NoLabels = False,
    alpha: _Alpha = 0.001,
    draws: _Draws = None,
    method: _Method = None,
    sweep: _Sweep = None,
    radius_to: _To = None,
    radius_step: _Step = None,
    bands: _Bands = None,
    out: _Out = None,
    force: Force = False,
) -> None:
    """Certify the votes of every image and average certified recall, precision and F1 over radii.

    Top-k votes take --k and --k-prime, votes of sets --rule threshold and --threshold. A sweep holds point by point:
    its best point, picked afterwards, is not covered by alpha.

    Example: multiguard certify runs/votes --k 4 --k-prime 2 --method all --out runs/certificates
    """
    from multiguard.cli.scores import show_scores
    from multiguard.pipeline.asked import make_config
    from multiguard.pipeline.certifying import CertifyJob, certify

    target = out or votes.parent / "certificates"
    one_of("rule", rule, tuple(_ALL))
    job = CertifyJob(
        votes,
        target,
        make_config(rule, k=k, k_prime=k_prime, threshold=threshold, alpha=alpha, draws=draws),  # type: ignore[arg-type]
        methods=_methods(method, _ALL[rule]),
        labels="pilot" if no_labels else "truth",
        vary=_varied(sweep),
        radius_to=radius_to,
        radius_step=radius_step,
        bands=bands,
        command=typed(),
        force=force,
    )
    with progress_bar("steps") as progress:
        found = certify(job, progress)
    show_scores(found, PlainConsole())
    echo(f"\ncertificates.parquet, curves.csv and labels.csv: {target}")


def _methods(given: Sequence[str] | None, every: Sequence[str]) -> list[Any]:
    named = [one for name in given or ["joint"] for one in (every if name == "all" else (name,))]
    return list(dict.fromkeys(named))


def _varied(given: Sequence[str] | None) -> dict[Any, list[float]]:
    """The values of each parameter; the same parameter named again adds to them."""
    vary: dict[Any, list[float]] = {}
    for text in given or ():
        name, _, values = text.partition("=")
        if name not in _VARIED:
            raise InvalidInputError(unknown_name("parameter of a sweep", name, _VARIED))
        vary.setdefault(name, []).extend(_values(name, values))
    return vary


def _values(name: str, values: str) -> list[float]:
    kind = float if name in ("alpha", "threshold") else int
    try:
        return [kind(word) for word in values.split(",")]
    except ValueError:
        raise InvalidInputError(f"--sweep {name}={values}: expected numbers, as in k=1,3,5 or alpha=0.01,0.1") from None
