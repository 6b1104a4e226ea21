"""Certifying by names and paths: from a votes folder to a certificates folder, sweeps among its curves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate import AnySetting, LabelSource, certify_votes, curves, radius_grid, sweep
from multiguard.evaluate.sweeps import Parameter
from multiguard.io.records import decode_json
from multiguard.pipeline.places import require_inside, require_no_other
from multiguard.results import CertificatesFolder, read_certificates, write_certificates
from multiguard.results.certificates_folder import CERTIFICATES_NAME
from multiguard.votes import read_votes

SOURCE_FILE = "source.json"
# Called with what is going on, how much of it is done, and how much there is.
Progressed = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CertifyJob:
    """What is asked of which votes, and where the answer goes.

    Attributes:
        votes: The votes folder.
        out: The certificates folder to write.
        setting: k and k', or the threshold; alpha and the number of draws.
        methods: The methods to compare.
        labels: What is certified: the true labels, or those that pilot draws chose.
        vary: For a sweep, the values of each parameter.
        radius_to: The largest radius of the curves; None for 3 sigma.
        radius_step: The step between two radii; None for sigma / 20.
        bands: The level of confidence bands over images; None for no bands.
        command: What reproduces the certificates, for the record.
        force: Whether certificates that are there are replaced.
    """

    votes: Path
    out: Path
    setting: AnySetting
    methods: Sequence[Method] = ("joint",)
    labels: LabelSource = "truth"
    vary: Mapping[Parameter, Sequence[float]] = field(default_factory=dict)
    radius_to: float | None = None
    radius_step: float | None = None
    bands: float | None = None
    command: str = ""
    force: bool = False


def certify(job: CertifyJob, progress: Progressed | None = None) -> CertificatesFolder:
    """Do the job; the folder as it was written is returned, and an existing one is replaced only by force."""
    require_no_other(job.out, "certificates")
    if job.out.parent == job.votes.parent:
        require_inside(job.votes.parent, job.out)
    if not job.force and (job.out / CERTIFICATES_NAME).exists():
        raise InvalidInputError(f"{job.out} holds certificates already; --force replaces them, or name another folder")
    votes = read_votes(job.votes)
    radius = radius_grid(votes.provenance.sigma, to=job.radius_to, step=job.radius_step)
    asked: dict[str, Any] = {"methods": job.methods, "labels": job.labels}
    proved = certify_votes(votes, job.setting, **asked, progress=_told(progress, "certifying"))
    drawn = curves(proved, radius, bands=job.bands)
    drawn += sweep(votes, job.setting, job.vary, radius, **asked, progress=_told(progress, "sweeping"))
    more: dict[str, Any] = {"source": read_source(job.votes), "command": job.command or None, "force": job.force}
    write_certificates(job.out, proved, drawn, radius=radius, votes=votes, **more)
    return read_certificates(job.out)


def read_source(votes: Path) -> dict[str, Any]:
    """What a votes folder says of its images and its model; nothing where it says nothing."""
    try:
        return decode_json((votes / SOURCE_FILE).read_bytes(), dict[str, Any])
    except (OSError, ValueError):
        return {}


def _told(progress: Progressed | None, doing: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(doing, done, total)
