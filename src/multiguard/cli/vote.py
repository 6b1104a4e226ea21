"""`multiguard vote`: noisy copies of images, classified and kept draw by draw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from multiguard.cli.options import Fields, ForceOther, NoiseText, Sigma, typed_command, with_options
from multiguard.cli.progress import progress_bar
from multiguard.cli.signals import graceful_stop
from multiguard.cli.terminal import echo
from multiguard.data.config import DataConfig
from multiguard.errors import InvalidInputError
from multiguard.io.ranks import this_rank
from multiguard.models.config import ModelConfig
from multiguard.pipeline.recipe import CertifyPart
from multiguard.smooth.config import VoteConfig, named_noise

if TYPE_CHECKING:
    from multiguard.evaluate import CertifyConfig
    from multiguard.pipeline.vote_job import PreparedVote, VoteResult

FINISHING = "the shards under way are finished first"

_Data = Annotated[DataConfig, Fields(help={"seed": "Seed of that sample [0], and of the noise [random]."})]
_Target = Annotated[
    dict[str, Any],
    Fields(
        CertifyPart,
        only=("k", "k_prime", "threshold", "alpha"),
        help={
            "k": "For adaptive draws: the k to certify.",
            "k_prime": "For adaptive draws: the k' to certify.",
            "threshold": "For adaptive draws and --rule threshold: the threshold to certify.",
            "alpha": "For adaptive draws: the alpha to certify.",
        },
    ),
]
_Out = Annotated[Path, Option(help="The votes folder to write; the same run in it resumes.")]


@with_options
def vote_command(
    model: ModelConfig,
    data: _Data,
    out: _Out,
    vote: VoteConfig,
    target: _Target,
    sigma: Sigma = None,
    noise: NoiseText = None,
    force: ForceOther = False,
) -> None:
    """Classify many noisy copies of each image and keep every vote.

    The same command resumes after an interruption, and runs on several GPUs under torchrun. One folder of votes serves
    every k, k', alpha and radius; those given here tell adaptive draws when an image has enough of them.

    Example: multiguard vote --model runs/digits --data digits --images 100 --out runs/votes
    """
    from multiguard.pipeline.folders import check_content
    from multiguard.pipeline.sanity import look_at
    from multiguard.pipeline.vote_job import VoteJob, prepare_vote

    check_content(out, "votes")
    named = named_noise(sigma, noise)
    job = VoteJob(model, data, out, named, vote, _target(vote, target), typed_command())
    prepared = prepare_vote(job)
    if this_rank().is_main:
        show_notes(prepared)
        for warning in look_at(prepared).warnings:
            echo(f"warning: {warning}")
    with graceful_stop(FINISHING) as stop, progress_bar("images") as progress:
        result = prepared.vote(lambda done, total: progress("voting", done, total), stop, force=force)
    if result is not None:
        _show_result(prepared, result)


def show_notes(prepared: "PreparedVote") -> None:
    """Print what the user should know before a vote."""
    if prepared.made_for not in (None, prepared.noise):
        echo(f"note: {prepared.job.model.spec} was made for {prepared.made_for}; this votes with {prepared.noise}")
    if prepared.fewer_note is not None:
        echo(f"note: {prepared.fewer_note}")
    if prepared.order_note is not None:
        echo(f"{prepared.order_note}; --labels FILE if the model's differs")


def _show_result(prepared: "PreparedVote", result: "VoteResult") -> None:
    if (failed := result.failure_text()) is not None:
        echo(failed)
    part = prepared.job.part
    draws = f"an average of {result.mean_draws:.1f} votes" if part.adaptive else f"{part.draws} votes"
    if pilots := part.pilots(prepared.job.data.labelled):
        draws += f" and {pilots} pilot draws"
    voted = result.images - len(result.failures)
    echo(f"{draws} on each of {voted} images, {prepared.noise}: {prepared.job.out}")


def _target(vote: VoteConfig, target: dict[str, Any]) -> "CertifyConfig | None":
    """What adaptive draws try to prove; a fixed number of draws has no use for it."""
    if vote.adaptive:
        return CertifyPart(**target).config(vote.rule)
    for name in target:
        raise InvalidInputError(
            f"--{name.replace('_', '-')} tells adaptive draws when to stop, and --draws is {vote.most_draws}; "
            "leave it to certify"
        )
    return None
