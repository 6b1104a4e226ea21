"""`multiguard vote`: noisy copies of images, classified and kept draw by draw."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from multiguard.cli.console import echo, print_line, progress_bar
from multiguard.cli.options import MODEL, Fields, ForceOther, typed_command, with_options
from multiguard.cli.signals import graceful_stop
from multiguard.data.config import DataConfig
from multiguard.errors import InvalidInputError
from multiguard.evaluate.config import CertifyConfig
from multiguard.io.config import Config
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import ClusterConfig, NoiseOption, SigmaOption, VoteConfig, named_noise

if TYPE_CHECKING:
    from multiguard.smooth.vote import NamedRun

FINISHING = "the shards under way are finished first"

_Model = Annotated[ModelConfig, Fields(MODEL)]
_Data = Annotated[DataConfig, Fields(("name", "root", "split", "images", "seed", "size", "labelled"))]
_Vote = Annotated[VoteConfig, Fields(("draws", "radii", "rule", "noise_seed", "device", "on_error"))]
_TARGET_HELP = {"k": "For adaptive draws: the k to certify.", "k_prime": "For adaptive draws: the k' to certify."}
_Target = Annotated[dict[str, Any], Fields(tuple(_TARGET_HELP), CertifyConfig, _TARGET_HELP, ("threshold", "alpha"))]
_Cluster = Annotated[ClusterConfig, Fields(("cluster",))]
_Out = Annotated[Path | None, Option(help="The votes folder to write; the same run in it resumes.")]


class NoiseConfig(Config, frozen=True):
    """The noise to vote with, by one of its two names."""

    sigma: SigmaOption = None
    noise: NoiseOption = None


_DryRun = Annotated[bool, Option("--dry-run", help="Say what would happen, and what looks wrong; write nothing.")]


@with_options
def vote_command(
    model: _Model,
    data: _Data,
    vote: _Vote,
    target: _Target,
    noise: NoiseConfig,
    cluster: _Cluster,
    out: _Out = None,
    force: ForceOther = False,
    dry_run: _DryRun = False,
) -> None:
    """Classify many noisy copies of each image and keep every vote.

    The same command resumes after an interruption, and votes on many machines with --cluster. One folder of votes
    serves every k, k', alpha and radius; those given here tell adaptive draws when an image has enough of them. A dry
    run says what would happen: images, labels, recall with and without noise, the largest provable radius, the time.

    Example: multiguard vote --model runs/digits --data digits --images 100 --out runs/votes
    """
    from multiguard.smooth import vote as votes_of
    from multiguard.votes.provenance import engine_words

    named, goal = named_noise(noise.sigma, noise.noise), _target(vote, target)
    if dry_run:
        return _say(votes_of.NamedRun(vote, data, model, noise=named, target=goal))
    if out is None:
        raise InvalidInputError("--out is missing: the votes folder to write; --dry-run writes none")
    draw = partial(votes_of.vote, vote, data, model, noise=named, target=goal, cluster=cluster, force=force)
    with graceful_stop(FINISHING) as stop, progress_bar("images") as progress:
        told = partial(progress, "voting")
        votes = draw(out=out, command=typed_command(), note=print_line, progress=told, stop=stop)
    if (failed := votes_of.failure_text(votes)) is not None:
        echo(failed)
    run = votes.provenance
    draws = f"an average of {votes_of.mean_draws(votes):.1f} votes" if votes.adaptive else f"{run.draws} votes"
    pilot = f" and {run.pilot_draws} pilot draws" if run.pilot_draws else ""
    engine = engine_words(run.device, run.precision, run.compiled)
    echo(f"{draws}{pilot} on each of {len(votes)} images, {run.noise}, by {engine}: {out}")
    return None


def _say(run: "NamedRun") -> None:
    """Print what the votes would be of, and what to expect."""
    classifier = run.smoother.classifier
    names = classifier.label_names
    labels = f"{len(names)} labels, {names[0]} to {names[-1]}"
    lines = [*run.notes, f"{classifier.name}: {labels}; scores are {classifier.output}", f"images: {run.images.name}"]
    for line in (*lines, *run.facts()):
        echo(line)


def _target(vote: VoteConfig, target: dict[str, Any]) -> CertifyConfig | None:
    """What adaptive draws try to prove; a fixed number of draws has no use for it."""
    if vote.adaptive:
        config = CertifyConfig(**target)
        config.rule_of(vote.rule)
        return config
    for name in target:
        raise InvalidInputError(
            f"{name} tells adaptive draws when to stop, and --draws is {vote.most_draws}; leave it to certify"
        )
    return None
