"""From votes folders to the record of a choice: k' or t, and one of several models."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.evaluate import Metric, Tuned, candidate_rules, tune
from multiguard.io.rounding import plain
from multiguard.pipeline.recipe import CertifyPart
from multiguard.results import write_tuned
from multiguard.votes import read_votes


@dataclass(frozen=True)
class TuneJob:
    """What to choose, from which votes, and where the record goes."""

    votes: tuple[Path, ...]
    out: Path  # the file to write
    radius: float  # the l2-norm at which certified scores are compared
    part: CertifyPart  # k, alpha, the draws and the method
    metric: Metric | None = None  # recall for the top-k rule, f1 for the threshold rule by default
    images: int | None = None  # how many images choose; half of them by default
    seed: int = 0  # of the sample of these images
    force: bool = False  # whether to replace another choice


@dataclass(frozen=True, eq=False)
class TuneResult:
    """The choice, and how to use it."""

    tuned: Tuned
    others: int  # how many images of the chosen votes had no part in it
    command: str  # certifies them; the votes are left open where there are none


def tune_votes(job: TuneJob, progress: Callable[[int, int], None] | None = None) -> TuneResult:
    """Choose on a random part of the images, and write the record that `certify` leaves them out by.

    >>> tune_votes(TuneJob((Path("no-such-votes"),), Path("tuned.json"), 0.5, CertifyPart(k=3)))
    Traceback (most recent call last):
        ...
    multiguard.errors.VotesError: no-such-votes does not exist; name a votes folder, as `multiguard vote` writes it.
    """
    if len(job.part.methods) > 1:
        raise InvalidInputError("--method names several methods; tune by the one that will certify")
    votes = [read_votes(folder) for folder in job.votes]
    offered = [candidate_rules(one.provenance, job.part.k) for one in votes]
    tuned = tune(
        votes,
        [rule for rule in offered[0] if all(rule in rules for rules in offered)],
        job.radius,
        metric=job.metric or ("recall" if votes[0].rule == "top-k" else "f1"),
        images=job.images,
        seed=job.seed,
        method=job.part.methods[0] if job.part.methods else None,
        alpha=job.part.alpha,
        n=job.part.draws,
        progress=progress,
    )
    write_tuned(job.out, tuned, force=job.force)
    chosen = votes[tuned.best.votes]
    others = len(chosen) - len(tuned.ids)
    return TuneResult(tuned, others, _command(job, job.votes[tuned.best.votes] if others else None))


def _command(job: TuneJob, votes: Path | None) -> str:
    """The command that certifies the votes with the choice, otherwise as it was tuned."""
    words = ["multiguard", "certify", "VOTES" if votes is None else str(votes), "--tuned", str(job.out)]
    default = CertifyPart()
    words += ["--method", *job.part.methods] if job.part.methods else []
    words += ["--alpha", plain(job.part.alpha)] if job.part.alpha != default.alpha else []
    words += ["--draws", str(job.part.draws)] if job.part.draws is not None else []
    return shlex.join(words)
