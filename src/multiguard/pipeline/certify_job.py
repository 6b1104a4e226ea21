"""From a votes folder to a certificates folder, sweeps among its curves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from multiguard.certify.arrays import Floats
from multiguard.certify.draw_limits import largest_radius, nothing_words
from multiguard.certify.rules import RuleName
from multiguard.errors import InvalidInputError
from multiguard.evaluate import (
    CertifyConfig,
    LabelSource,
    Parameter,
    Tuned,
    certify_votes,
    curves,
    radius_grid,
    sweep,
)
from multiguard.io.config import to_tree
from multiguard.io.files import read_regular
from multiguard.io.records import decode_json
from multiguard.io.writer import holds_other
from multiguard.pipeline.folders import check_content, check_inside
from multiguard.pipeline.recipe import CertifyPart
from multiguard.results import Results, read_certificates
from multiguard.results.certificate_files import CERTIFICATES_NAME, certificates_stage, stage_certificates
from multiguard.version import __version__
from multiguard.votes import Votes
from multiguard.votes.folder import SOURCE_FILE
from multiguard.votes.shards import OpenManifest, open_manifest
from multiguard.votes.store import open_votes

# Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CertifyJob:
    """What to certify from which votes, and where the certificates go.

    >>> job = CertifyJob(Path("votes"), Path("certificates"), CertifyPart(k=3, k_prime=1))
    >>> job.part.config(job.rule).rule
    TopK(k=3, k_prime=1)
    """

    votes: Path
    out: Path  # the certificates folder to write
    part: CertifyPart  # what to certify, by which methods, at which radii
    rule: RuleName = "top-k"  # the rule of the votes
    labels: LabelSource = "truth"  # certify the ground truth ("truth"), or what pilot draws chose ("pilot")
    vary: Mapping[Parameter, Sequence[float]] = field(default_factory=dict)  # the values of each parameter of a sweep
    tuned: Tuned | None = None  # a choice of `tune`, whose images are left out
    command: str = ""  # the command line, for the record
    force: bool = False  # whether to replace certificates that are there

    def inputs(self, votes_hash: str) -> dict[str, Any]:
        """Everything that decides the certificates, by name; the hash is that of the manifest that was read."""
        named = {**to_tree(self.part), "rule": self.rule, "labels": self.labels, "vary": self.vary}
        return {
            **{f"certify.{name}": value for name, value in named.items()},
            "votes": votes_hash,
            "multiguard": __version__,
            **({} if self.tuned is None else {"tuned": [self.tuned.ids, self.tuned.image_hashes]}),
        }


def with_choice(job: CertifyJob, tuned: Tuned) -> CertifyJob:
    """The job with the rule that was chosen, and without the images that chose it; a rule of its own is refused."""
    rule, options = tuned.best.rule, dict[str, Any](tuned.best.rule.options)
    for name in ("k", "k_prime", "threshold"):
        if getattr(job.part, name) is not None:
            raise InvalidInputError(f"{name} is given beside a tuned choice, which is {rule}; leave out one of them")
    return replace(job, part=job.part.replace(**options), rule=rule.name, tuned=tuned)


def with_own_folder(job: CertifyJob, votes_hash: str) -> CertifyJob:
    """The job with its config in the name of its folder, if certificates of another config are there already."""
    config = job.part.config(job.rule)
    if job.force or not holds_other(job.out / CERTIFICATES_NAME, job.inputs(votes_hash)):
        return job
    named = {**config.rule.options, "alpha": config.alpha, "n": job.part.draws}
    default = CertifyPart()
    left_out = {"alpha": default.alpha, "n": None}
    words = [f"{name.replace('_', '-')}-{value:g}" for name, value in named.items() if left_out.get(name, 0) != value]
    words += [] if job.part.methods == default.methods else job.part.methods
    words += [] if job.labels == "truth" else [job.labels]
    words += [] if job.tuned is None else ["tuned"]
    return replace(job, out=job.out.with_name("-".join((job.out.name, *words))))


def certify(job: CertifyJob, progress: Progress | None = None, *, opened: OpenManifest | None = None) -> Results:
    """Certify the votes and write the certificates folder; other certificates are replaced only with `force`.

    The same job again finds its work done, or completes it. The folder is read back, so that what is shown is what the
    files say, checksums and all. `opened` is the manifest of the votes where it was read already: votes that came in
    their place since are refused.

    >>> certify(CertifyJob(Path("no-such-votes"), Path("certificates"), CertifyPart(k=3, k_prime=1)))
    Traceback (most recent call last):
        ...
    multiguard.errors.VotesError: no-such-votes does not exist; name a votes folder, as `multiguard vote` writes it.
    """
    opened = open_manifest(job.votes) if opened is None else opened
    config, whole, request = job.part.config(job.rule), open_votes(opened), job.inputs(opened.sha256)
    source, votes = read_source(job.votes), whole
    if job.tuned is not None:
        votes = job.tuned.others(whole)
        source["tuned"] = {"left_out": len(whole) - len(votes), "radius": job.tuned.radius}
    radius = radius_grid(votes.provenance.noise, to=job.part.radius_to, step=job.part.radius_step)
    check_content(job.out, "certificates")
    if job.out.parent == job.votes.parent:
        check_inside(job.votes.parent, job.out)
    with certificates_stage(job.out, request, force=job.force) as stage:
        if stage is not None:
            _write(job, stage, config, votes, source, radius, progress)
    del whole, votes  # what is read back takes as much memory again
    return read_certificates(job.out)


def _write(
    job: CertifyJob,
    stage: Path,
    config: CertifyConfig,
    votes: Votes,
    source: dict[str, Any],
    radius: Floats,
    progress: Progress | None,
) -> None:
    shared: dict[str, Any] = {"methods": job.part.methods or None, "labels": job.labels}
    certificates = certify_votes(votes, config, **shared, progress=progress and partial(progress, "certifying"))
    lines = curves(certificates, radius, bands=job.part.bands or None)
    lines += sweep(votes, config, job.vary, radius, **shared, progress=progress and partial(progress, "sweeping"))
    more: dict[str, Any] = {"source": source, "command": job.command or None}
    stage_certificates(stage, certificates, lines, radius=radius, votes=votes, **more)


def why_nothing(written: Results) -> str | None:
    """Why every certified number is 0, if the draws are too few to prove anything at all; None if they are not."""
    proved = written.certificates
    draws, labels = max(proved.draws, default=0), len(proved.label_names)
    rule, alpha, method = proved.config.rule, proved.config.alpha, proved.methods[0]
    if draws == 0 or method not in ("joint", "coupled", "betting"):
        return None
    if largest_radius(draws, rule, labels, proved.noise, alpha, method) >= 0:
        return None
    return nothing_words(draws, rule, labels, alpha, method)


def read_source(votes: Path) -> dict[str, Any]:
    """Which images and which model a votes folder names; empty where it names none."""
    try:
        return decode_json(read_regular(votes / SOURCE_FILE), dict[str, Any])
    except (OSError, ValueError):
        return {}
