"""`multiguard vote`: noisy copies of pictures, classified and kept draw by draw."""

from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer import Option

from multiguard.cli.command import typed
from multiguard.cli.options import (
    BatchSize,
    Clamp,
    Data,
    Device,
    Difficult,
    Force,
    Labels,
    Mean,
    Model,
    Output,
    Precision,
    Root,
    Separator,
    Size,
    Std,
    Table,
    Weights,
    given,
    numbers,
    one_of,
)
from multiguard.cli.progress import shown

_Out = Annotated[Path, Option(help="The votes folder to write; with the same run in it, the run goes on.")]
_Split = Annotated[str | None, Option(help="Which split [test; coco and nuswide: val].")]
_Images = Annotated[int | None, Option(help="Vote on a random part of so many pictures [all].")]
_Seed = Annotated[int, Option(help="Decides that part, and the noise.")]
_Draws = Annotated[int, Option(help="n, the noisy copies of each picture.")]
_Sigma = Annotated[float | None, Option(help="The noise, in pixels of [0, 1] [the model folder's].")]
_KMax = Annotated[int | None, Option(help="Ranked labels kept of each draw: the largest k' [10, or all].")]
_Shard = Annotated[int, Option(help="Pictures a file; an interruption costs at most two files.")]
_Readers = Annotated[int, Option(help="Threads that decode pictures.")]


def vote_command(
    model: Model,
    data: Data,
    out: _Out,
    root: Root = None,
    split: _Split = None,
    images: _Images = None,
    seed: _Seed = 0,
    draws: _Draws = 1000,
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
    force: Force = False,
) -> None:
    """Classify many noisy copies of each picture and keep every vote.

    The same command goes on after an interruption. One folder of votes answers every k, k', alpha and radius.

    Example: multiguard vote --model runs/digits --data digits --images 100 --out runs/votes
    """
    _vote(**locals())


def _vote(*, data: str, out: Path, force: bool, **rest: Any) -> None:
    from multiguard.data.source import Source
    from multiguard.pipeline.recipe import VotePart
    from multiguard.pipeline.voting import VoteJob, prepare_vote
    from multiguard.smooth import Precision as Precisions

    one_of("precision", rest["precision"], get_args(Precisions))
    options = given(**{name: rest[name] for name in ("table", "separator", "difficult")})
    source = Source(data, rest["root"], rest["split"], rest["size"], rest["images"], rest["seed"], options)
    how = VotePart(**{name: rest[name] for name in VotePart.__dataclass_fields__})
    job = VoteJob(model_part(rest.pop("model"), rest), source, out, rest["sigma"], how, typed())
    ready = prepare_vote(job)
    if ready.made_for is not None and ready.made_for != ready.sigma:
        typer.echo(f"note: {job.model.spec} was made for sigma {ready.made_for:g}; this votes at {ready.sigma:g}")
    if force:
        ready.discard_old()
    with shown("pictures") as progress:
        ready.vote(lambda done, total: progress("voting", done, total))
    typer.echo(f"{how.draws} votes on each of {len(ready.pictures)} pictures at sigma {ready.sigma:g}: {out}")


def model_part(spec: str, said: dict[str, Any]) -> Any:
    """The model that the options name, and what they say about it."""
    from multiguard.models import Output as Outputs
    from multiguard.pipeline.recipe import ModelPart

    output = one_of("output", said["output"], get_args(Outputs))
    mean, std = (numbers(name, said[name]) for name in ("mean", "std"))
    return ModelPart(spec, said["labels"], said["weights"], output, mean, std)
