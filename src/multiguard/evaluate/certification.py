"""From votes to results: what is proved of every image with one config, its curves and its sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.errors import InvalidInputError
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.certifier import Certifier, LabelSource
from multiguard.evaluate.config import CertifyConfig, SweepConfig
from multiguard.evaluate.curves import curves, radius_grid
from multiguard.evaluate.results import Results, plain_provenance
from multiguard.io.config import to_tree
from multiguard.io.records import checksum
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.votes import VoteRow, Votes

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, and how much there is

# The votes of about this many bytes are held at a time; each is read from the disk once.
_BYTES_AT_A_TIME = 1 << 26
# Images with equally many labels are solved together: more than this many gain little, and would hide progress.
_IMAGES_AT_A_TIME = 512


def certify_votes(
    config: CertifyConfig,
    votes: Votes,
    *,
    sweep: SweepConfig | None = None,
    labels: LabelSource = "truth",
    source: Mapping[str, Any] | None = None,
    command: str | None = None,
    out: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Results:
    """The claims on each image, by each method, hold with probability at least 1 - alpha over its draws.

    The votes of every image are read once. Each point of a sweep alone has that promise; the best point picked
    afterwards is not covered. Adaptive votes are certified by the method betting only.

    Args:
        config: The rule, alpha, the methods, and the radii of the curves. Methods are by default that of
            `certified_radii` for this rule, noise and number of draws, for adaptive votes "betting".
        votes: What `vote_dataset` or `read_votes` returns.
        sweep: Values of single parameters to certify the same votes with.
        labels: "truth", to certify the true labels, which must not have been chosen from these draws; or "pilot", to
            certify the labels that the pilot draws choose. Then recall is the fraction of the predicted labels that
            provably stay.
        source: Which images and which model, as plain JSON values, for the record.
        command: The command line, for the record.
        out: A folder for certificates.parquet and its tables, which `read_certificates` reads. Where the same
            certificates are there already they are read; others are replaced only with `force`.
        force: Whether to replace other certificates.
        progress: Called with what is being done, how much of it is done, and how much there is.

    >>> from multiguard import CertifyConfig, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> results = certify_votes(CertifyConfig(k=10, k_prime=3, methods=("joint", "paper")), votes)
    >>> results.certificates.methods, results.certificates.config.draws, len(results.certificates.radii["joint"])
    (('joint', 'paper'), 7, 5)
    """
    make = partial(_results, config, votes, sweep or SweepConfig(), labels, source, command, progress)
    if out is None:
        return make()
    from multiguard.evaluate.certificate_files import kept_results

    return kept_results(Path(out), certify_request(config, votes, sweep, labels), make, force=force)


def certify_request(
    config: CertifyConfig, votes: Votes, sweep: SweepConfig | None = None, labels: LabelSource = "truth"
) -> dict[str, Any]:
    """Everything that decides the results, by name."""
    return {
        **{f"certify.{name}": value for name, value in to_tree(config).items()},
        "certify.labels": labels,
        "certify.sweep": to_tree(sweep or SweepConfig()),
        "votes": votes.manifest_hash,
        "images": checksum({"ids": [*votes.ids]}),
        "multiguard": __version__,
    }


def make_certificates(
    config: CertifyConfig,
    votes: Votes,
    *,
    labels: LabelSource = "truth",
    progress: Callable[[int, int], None] | None = None,
) -> Certificates:
    """The promise of `certify_votes`, without curves; `progress` is called with the images done and all images.

    >>> from multiguard import CertifyConfig, read_votes
    >>> make_certificates(CertifyConfig(k=10, k_prime=3), read_votes(folder)).methods  # the votes of 5 images
    ('joint',)
    """
    configs = [config.resolve(votes.provenance)]
    return certify_configs(configs, votes, labels, per_unit(progress, len(votes)))[0]


def certify_configs(
    configs: Sequence[CertifyConfig],
    votes: Votes,
    source: LabelSource,
    progress: Callable[[int, int], None] | None,
    *,
    sets_only: bool = False,
) -> list[Certificates]:
    """The promise of `certify_votes` for each of these resolved configs; the votes of every image are read once.

    `progress` counts steps. Of all configs but the first, and with `sets_only` of that one too, `label_radii` and
    `predicted` are left empty where they are not needed.
    """
    certifiers = [Certifier(votes, config, source) for config in configs]
    done, steps = 0, len(votes) * sum(1 + len(config.methods) for config in configs)
    for rows in _portions(votes):
        for number, certifier in enumerate(certifiers):
            for _ in certifier.take(rows, sets_only=sets_only or number > 0):
                done += len(rows)
                if progress is not None:
                    progress(done, steps)
    return [certifier.certificates() for certifier in certifiers]


def per_unit(progress: Callable[[int, int], None] | None, total: int) -> Callable[[int, int], None] | None:
    """Progress in steps, reported as progress in `total` units; the last unit only when all is done."""
    return None if progress is None else lambda done, steps: progress(total * done // steps, total)


def _results(
    config: CertifyConfig,
    votes: Votes,
    sweep: SweepConfig,
    labels: LabelSource,
    source: Mapping[str, Any] | None,
    command: str | None,
    progress: Progress | None,
) -> Results:
    run = votes.provenance
    resolved, others = config.resolve(run), sweep.configs(config, run)
    radius = radius_grid(run.noise, to=config.radius_to, step=config.radius_step)
    counted = None if progress is None else partial(progress, "certifying")
    certificates, *swept = certify_configs([resolved, *others], votes, labels, per_unit(counted, len(votes)))
    made = curves(certificates, radius, bands=resolved.bands or None)
    made += [curve for one in swept for curve in curves(one, radius)]
    return Results(
        certificates,
        made,
        provenance=plain_provenance(run),
        votes_hash=votes.manifest_hash,
        certified_with=__version__,
        source=dict(source or {}),
        command=command,
        certificates_hash=checksum(certify_request(config, votes, sweep, labels)),
    )


def _portions(votes: Votes) -> Iterator[list[VoteRow]]:
    """All images in order, in runs whose votes fit in memory together."""
    if len(votes) == 0:
        failed = f": all {len(votes.failures)} images failed" if votes.failures else ""
        raise InvalidInputError(f"these votes hold no image, so there is nothing to certify{failed}")
    rows: list[VoteRow] = []
    held = 0
    for row in votes.rows(adaptive=votes.adaptive):
        rows.append(row)
        held += _bytes(row)
        if held >= _BYTES_AT_A_TIME or len(rows) == _IMAGES_AT_A_TIME:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows


def _bytes(row: VoteRow) -> int:
    return row.votes.nbytes if isinstance(row.votes, np.ndarray) else row.votes.packed.nbytes
