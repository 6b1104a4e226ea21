"""certificates.parquet, with curves.csv and labels.csv beside it.

The Parquet file alone holds everything: the claims of each image, and in its metadata the curves and where all of it
comes from. The CSV files are copies for people; nothing reads them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate import Certificates, CertifyConfig, Curve, label_scores
from multiguard.evaluate.certificates import draws_taken
from multiguard.evaluate.certifier import resolve_methods
from multiguard.evaluate.scores import check_radius
from multiguard.io.records import convert
from multiguard.io.writer import staged
from multiguard.results.certificate_table import (
    certificates_fields,
    certificates_schema,
    certificates_table,
    check_claims,
)
from multiguard.results.curve_files import check_curves, curves_text, parse_curves, write_curves, write_labels
from multiguard.results.run_results import Results
from multiguard.results.table_file import TableKind, config_record, parse_config
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from multiguard.votes import Provenance, Votes

CERTIFICATES_NAME, CURVES_NAME, LABELS_NAME = "certificates.parquet", "curves.csv", "labels.csv"
_KIND = TableKind(CERTIFICATES_NAME, "multiguard-certificates", 8, "a certificates folder", "certify the votes again")


@dataclass(frozen=True)
class _Metadata:
    """The metadata in the file."""

    config: dict[str, Any]
    labelled: bool
    methods: tuple[Method, ...]
    failures: tuple[ImageFailure, ...]
    provenance: dict[str, Any]
    votes_sha256: str
    certified_with: str
    source: dict[str, Any]
    command: str | None
    curves: str  # the content of curves.csv
    label_radius: tuple[float, ...]


def write_certificates(
    folder: str | Path,
    certificates: Certificates,
    curves: Sequence[Curve],
    *,
    radius: ArrayLike,
    votes: Votes,
    source: Mapping[str, Any] | None = None,
    command: str | None = None,
    request: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write a certificates folder so that a reader finds the old certificates or the new ones, complete.

    A CSV file never lies beside certificates that it was not made from. Files that multiguard did not write are never
    replaced.

    Args:
        folder: Where to write; made if it does not exist.
        certificates: What `certify_votes` proved.
        curves: The curves of the certificates, each method in both averagings, and sweeps.
        radius: (radii,), those of labels.csv, in the unit of the noise's attacker.
        votes: The votes that the certificates are made from.
        source: Which images and which model, as plain JSON values.
        command: The command that made the folder.
        request: Everything that decides the certificates; those of the same request are replaced without `force`.
        force: Whether to replace certificates that are there, and to write beside files of somebody else.

    >>> from multiguard import TopK, certify_votes, curves, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> certificates = certify_votes(votes, CertifyConfig(TopK(k=10, k_prime=3)))
    >>> write_certificates(out, certificates, curves(certificates, [0.0]), radius=[0.0], votes=votes)
    >>> read_certificates(out).certificates.ids == votes.ids
    True
    """
    with certificates_stage(Path(folder), request, force=force) as stage:
        if stage is not None:
            stage_certificates(stage, certificates, curves, radius=radius, votes=votes, source=source, command=command)


def stage_certificates(
    stage: Path,
    certificates: Certificates,
    curves: Sequence[Curve],
    *,
    radius: ArrayLike,
    votes: Votes,
    source: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> None:
    """Write the files of a certificates folder to a staged one; for the arguments see `write_certificates`."""
    _check_votes(certificates, votes)
    check_curves(certificates, curves)
    metadata = {
        "config": config_record(certificates.config),
        **{name: getattr(certificates, name) for name in ("labelled", "methods", "failures")},
        "provenance": {name: value for name, value in vars(votes.provenance).items() if name != "image_ids"},
        "votes_sha256": votes.manifest_hash,
        "certified_with": __version__,
        "source": dict(source or {}),
        "command": command,
        "curves": curves_text(curves),
        "label_radius": check_radius(radius, certificates.noise).tolist(),
    }
    schema = certificates_schema(certificates.methods, certificates.config.rule)
    _KIND.write(stage, schema, map(certificates_table, certificates.parts()), metadata)
    write_curves(stage / CURVES_NAME, curves)
    write_labels(stage / LABELS_NAME, label_scores(certificates, radius), certificates.noise)


def certificates_stage(
    folder: Path, request: Mapping[str, Any] | None = None, *, force: bool = False
) -> AbstractContextManager[Path | None]:
    """A private folder for the files of a certificates folder; see `staged`."""
    names = (CURVES_NAME, LABELS_NAME)
    return staged(folder / CERTIFICATES_NAME, request, kind="certificates", names=names, force=force)


def read_certificates(folder: str | Path) -> Results:
    """A certificates folder as it was written; a damaged or edited one raises `DataError` naming the file.

    Only certificates.parquet is read.

    >>> read_certificates(out)  # for what it returns see `write_certificates`
    Traceback (most recent call last):
    multiguard.errors.DataError: ... is not a certificates folder: it has no certificates.parquet
    """
    return _KIND.read(Path(folder), _parse)


def _parse(stored: dict[str, Any], file: pq.ParquetFile, digest: str) -> Results:
    from multiguard.votes import Provenance

    metadata = convert(stored, _Metadata)
    run = convert({**metadata.provenance, "image_ids": []}, Provenance)
    config = parse_config(metadata.config)
    _check_run(config, run)
    methods = resolve_methods(metadata.methods, config, run)
    fields = certificates_fields(file, certificates_schema(methods, config.rule), run.label_names, methods)
    fields |= {"config": config, "labelled": metadata.labelled, "failures": metadata.failures}
    certificates = Certificates(noise=run.noise, label_names=run.label_names, **fields)
    check_claims(certificates)
    curves = parse_curves(metadata.curves.encode())
    check_curves(certificates, curves)
    labels = label_scores(certificates, metadata.label_radius)
    same = {name: getattr(metadata, name) for name in ("provenance", "certified_with", "source", "command")}
    same |= {"votes_hash": metadata.votes_sha256, "certificates_hash": digest}
    return Results(certificates, curves, labels, **same)


def _check_votes(certificates: Certificates, votes: Votes) -> None:
    """Raises unless the certificates can be those of the votes, and every label has its own name."""
    run = votes.provenance
    same = certificates.ids == votes.ids and certificates.failures == votes.failures
    same &= certificates.draws == draws_taken(votes, certificates.config)
    if not same or (certificates.labelled and certificates.labels != votes.labels):
        raise InvalidInputError("the certificates are not of the images of these votes; certify these votes")
    rule = certificates.rule_name
    if rule != run.rule:
        raise InvalidInputError(f"the certificates are of the {rule} rule, these votes of the {run.rule} rule")
    if (certificates.noise, certificates.label_names) != (run.noise, run.label_names):
        raise InvalidInputError("the certificates have another noise or other labels than these votes")
    name, times = Counter(run.label_names).most_common(1)[0]
    if times > 1:
        raise InvalidInputError(f"{times} labels are named {name!r}; results by name need different names")


def _check_run(config: CertifyConfig, run: Provenance) -> None:
    """Raises unless votes of this run can be certified with this config, an adaptive run with all of its draws."""
    if config != (replace(config, n=None) if run.stops is not None else config).resolve(run):
        raise ValueError(f"these votes cannot be certified with {config}")
    if not run.label_names or len(set(run.label_names)) < len(run.label_names):
        raise ValueError("every label needs its own name")
    stopping_radii = (run.stopping or {}).get("radii")
    if stopping_radii is not None:
        check_radius(convert(stopping_radii, tuple[float, ...]), run.noise)
