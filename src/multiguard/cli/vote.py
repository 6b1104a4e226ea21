"""`multiguard vote`: noisy copies of images, classified and kept draw by draw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from typer import Option

from multiguard.cli.command import typed
from multiguard.cli.options import (
    BatchSize,
    Clamp,
    Data,
    Device,
    Difficult,
    ForceOther,
    Labels,
    Mean,
    Model,
    Output,
    Precision,
    Root,
    Rule,
    ScoreThreshold,
    Separator,
    Size,
    Std,
    Table,
    Weights,
    given,
    numbers,
    one_of,
)
from multiguard.cli.progress import progress_bar
from multiguard.cli.signals import graceful_stop
from multiguard.cli.terminal import echo
from multiguard.errors import InvalidInputError
from multiguard.io.ranks import this_rank

if TYPE_CHECKING:
    from multiguard.evaluate import CertifyConfig
    from multiguard.pipeline.asked import VotePart
    from multiguard.pipeline.voting import ReadyVote

FINISHING = "the shards under way are finished first"

_Out = Annotated[Path, Option(help="The votes folder to write; with the same run in it, the run goes on.")]
_Split = Annotated[str | None, Option(help="Which split [test; coco and nuswide: val].")]
_Images = Annotated[int | None, Option(help="Vote on a random part of so many images [all].")]
_Seed = Annotated[int, Option(help="Decides that part, and the noise.")]
_Draws = Annotated[
    str, Option(help="n, the noisy copies of each image; or adaptive, as many as its certificate needs.")
]
_Radius = Annotated[list[float] | None, Option(help="What adaptive draws shall prove something at; again for more.")]
_MaxDraws = Annotated[int | None, Option(help="The most that adaptive draws take of an image [10000].")]
_K = Annotated[int | None, Option(help="For adaptive draws: the k to be certified.")]
_KPrime = Annotated[int | None, Option(help="For adaptive draws: the k' to be certified.")]
_Threshold = Annotated[
    float | None, Option(help="For adaptive draws of --rule threshold: the threshold, as certify's.")
]
_Alpha = Annotated[float | None, Option(help="For adaptive draws: the alpha to be certified [0.001].")]
_NoLabels = Annotated[
    bool, Option("--no-labels", help="The images have no labels, or none to be kept; a folder then needs no CSV.")
]
_Pilot = Annotated[int | None, Option(help="Further copies that choose the labels [100 with --no-labels].")]
_Sigma = Annotated[float | None, Option(help="The noise, in pixels of [0, 1] [the model folder's].")]
_KMax = Annotated[int | None, Option(help="Ranked labels kept of each draw: the largest k' [10, or all].")]
_Shard = Annotated[int, Option(help="Images a file; an interruption costs those under way.")]
_Readers = Annotated[int, Option(help="Threads that decode images.")]
_OnError = Annotated[
    str, Option(help="Where an image cannot be voted on: stop, or record it and go on with the others.")
]


def vote_command(
    model: Model,
    data: Data,
    out: _Out,
    root: Root = None,
    split: _Split = None,
    images: _Images = None,
    seed: _Seed = 0,
    draws: _Draws = "1000",
    radius: _Radius = None,
    max_draws: _MaxDraws = None,
    k: _K = None,
    k_prime: _KPrime = None,
    threshold: _Threshold = None,
    alpha: _Alpha = None,
    rule: Rule = "top-k",
    score_threshold: ScoreThreshold = None,
    no_labels: _NoLabels = False,
    pilot_draws: _Pilot = None,
    sigma: _Sigma = None,
    k_max: _KMax = None,
    labels: Labels = None,
    weights: Weights = None,
    output: Output = None,
    mean: Mean = None,
    std: Std = None,
    size: Size = None,
    table: Table = None,
    separator: Separator = None,
    difficult: Difficult = None,
    batch_size: BatchSize = None,
    device: Device = None,
    precision: Precision = None,
    clamp: Clamp = False,
    shard_images: _Shard = 64,
    readers: _Readers = 2,
    on_error: _OnError = "stop",
    force: ForceOther = False,
) -> None:
    """Classify many noisy copies of each image and keep every vote.

    The same command goes on after an interruption, and runs on several GPUs under torchrun. One folder of votes answers
    every k, k', alpha and radius; those given here tell adaptive draws when an image has enough of them.

    Example: multiguard vote --model runs/digits --data digits --images 100 --out runs/votes
    """
    _vote(**locals())


def _vote(*, data: str, out: Path, force: bool, **rest: Any) -> None:
    from multiguard.data.source import Source
    from multiguard.pipeline.voting import VoteJob, prepare_vote
    from multiguard.smooth import Precision as Precisions

    one_of("precision", rest["precision"], get_args(Precisions))
    options = given(**{name: rest[name] for name in ("table", "separator", "difficult")})
    chosen = {name: rest[name] for name in ("root", "split", "size", "images", "seed")}
    source = Source(data, options=options, labelled=not rest["no_labels"], **chosen)
    how = _how(rest)
    job = VoteJob(model_part(rest["model"], rest), source, out, rest["sigma"], how, _aim(how, rest), typed())
    ready = prepare_vote(job)
    if this_rank().is_main:
        _say_before(ready)
    with graceful_stop(FINISHING) as stop, progress_bar("images") as progress:
        ready.vote(lambda done, total: progress("voting", done, total), stop, force=force)
    if this_rank().is_main:
        _say_after(ready)


def _say_before(ready: "ReadyVote") -> None:
    if ready.made_for is not None and ready.made_for != ready.sigma:
        spec = ready.job.model.spec
        echo(f"note: {spec} was made for sigma {ready.made_for:g}; this votes at {ready.sigma:g}")
    if ready.order_note is not None:
        echo(f"{ready.order_note}; --labels FILE if the model's order is another")


def _say_after(ready: "ReadyVote") -> None:
    failed = ready.failures_said()
    if failed is not None:
        echo(failed)
    voted = len(ready.images) - len(ready.failures())
    echo(f"{_drawn(ready)} on each of {voted} images at sigma {ready.sigma:g}: {ready.job.out}")


def _how(said: dict[str, Any]) -> "VotePart":
    from multiguard.pipeline.asked import VotePart
    from multiguard.smooth.dataset import OnError
    from multiguard.votes import Rule as Rules

    one_of("rule", said["rule"], get_args(Rules))
    one_of("on-error", said["on_error"], get_args(OnError))
    named = {**said, "draws": _draws(said["draws"]), "radii": tuple(said["radius"] or ())}
    return VotePart(**{name: named[name] for name in VotePart.__dataclass_fields__})


def _draws(text: str) -> int | str:
    try:
        return text if text == "adaptive" else int(text)
    except ValueError:
        raise InvalidInputError(f"--draws {text}: expected a whole number, or the word adaptive") from None


def _aim(how: "VotePart", said: dict[str, Any]) -> "CertifyConfig | None":
    """What adaptive draws shall prove; a fixed number of draws has no use for it."""
    from multiguard.pipeline.asked import DEFAULT_ALPHA, make_config

    asked = {name: said[name] for name in ("k", "k_prime", "threshold", "alpha")}
    if how.adaptive:
        alpha = DEFAULT_ALPHA if asked["alpha"] is None else asked["alpha"]
        return make_config(how.rule, **{**asked, "alpha": alpha})
    for name in given(**asked):
        raise InvalidInputError(
            f"--{name.replace('_', '-')} tells adaptive draws when to stop, and --draws is {how.draws}; "
            "leave it to certify"
        )
    return None


def _drawn(ready: "ReadyVote") -> str:
    how = ready.job.how
    pilots = how.pilots(ready.job.source.labelled)
    counted = f"an average of {ready.mean_draws():.1f} votes" if how.adaptive else f"{how.draws} votes"
    return f"{counted} and {pilots} pilot draws" if pilots else counted


def model_part(spec: str, said: dict[str, Any]) -> Any:
    """The model that the options name, and what they say about it."""
    from multiguard.models import Output as Outputs
    from multiguard.pipeline.recipe import ModelPart

    output = one_of("output", said["output"], get_args(Outputs))
    mean, std = (numbers(name, said[name]) for name in ("mean", "std"))
    return ModelPart(spec, said["labels"], said["weights"], output, mean, std)
