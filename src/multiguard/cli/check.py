"""`multiguard check`: a look at a model, its images and the settings before anything is voted on."""

from pathlib import Path
from typing import Annotated, Any

from multiguard.cli.options import Fields, NoiseText, Sigma, with_options
from multiguard.cli.terminal import echo
from multiguard.cli.vote import show_notes
from multiguard.data.config import DataConfig
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import VoteConfig, named_noise

_Data = Annotated[DataConfig, Fields(help={"seed": "Seed of that sample."})]
_Vote = Annotated[dict[str, Any], Fields(VoteConfig, only=("draws", "rule", "score_threshold", "device"))]


@with_options
def check_command(model: ModelConfig, data: _Data, vote: _Vote, sigma: Sigma = None, noise: NoiseText = None) -> None:
    """Look at a model and its images before voting: what looks wrong, and what to expect.

    It is the pass that vote makes first: the range of the scores, the labels, recall with and without noise, whether
    the model is a fixed function of one image, the largest radius that the draws can prove, and the time.

    Example: multiguard check --model runs/digits --data digits --images 100
    """
    from multiguard.pipeline.sanity import look_at
    from multiguard.pipeline.vote_job import VoteJob, prepare_vote

    prepared = prepare_vote(VoteJob(model, data, Path(), named_noise(sigma, noise), VoteConfig(**vote)))
    show_notes(prepared)
    found = look_at(prepared)
    names, kind = prepared.classifier.label_names, prepared.classifier.output
    echo(f"{prepared.classifier.name}: {len(names)} labels, {names[0]} to {names[-1]}; scores are {kind}")
    for fact in found.facts:
        echo(fact)
    for warning in found.warnings:
        echo(f"warning: {warning}")
    echo(f"{len(found.warnings)} warnings" if found.warnings else "nothing looks wrong")
