"""certificates.parquet, with curves.csv and labels.csv beside it.

The Parquet file alone holds everything: the claims of each image, and in its metadata the curves and where all of it
comes from. The CSV files are copies for people; nothing reads them back.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Certificates, CertifyConfig, Curve, LabelScores, label_scores
from multiguard.evaluate.certificates import draws_taken
from multiguard.evaluate.certifier import check_methods
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.evaluate.scores import check_radius
from multiguard.io.files import require_folder, sync_folder
from multiguard.io.records import convert
from multiguard.results.certificate_table import (
    certificate_columns,
    certificate_fields,
    certificate_schema,
    check_claims,
)
from multiguard.results.curve_files import (
    config_from_record,
    config_record,
    curves_text,
    parse_curves,
    write_curves,
    write_labels,
)
from multiguard.results.table_file import TableKind
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from multiguard.votes import Provenance, Votes

CERTIFICATES_NAME, CURVES_NAME, LABELS_NAME = "certificates.parquet", "curves.csv", "labels.csv"
_STAGE = ".part"
_KIND = TableKind(CERTIFICATES_NAME, "multiguard-certificates", 4, "a certificates folder", "certify the votes again")


@dataclass(frozen=True, eq=False)
class CertificatesFolder:
    """A certificates folder as it was written, its checksums verified; for an example see `write_certificates`.

    Attributes:
        certificates: What was proved of every image.
        curves: The curves, sweeps included.
        labels: How often each label is certified on its own.
        provenance: Where the votes come from: the fields of their `Provenance` but for the image ids.
        votes_hash: The sha256 of the votes' manifest.
        certified_with: The version of multiguard that certified.
        source: Which images and which model, for people and for the report; empty where unknown.
        command: The command that made the folder; None where it is not known.
    """

    certificates: Certificates
    curves: list[Curve]
    labels: list[LabelScores]
    provenance: Mapping[str, Any]
    votes_hash: str
    certified_with: str
    source: Mapping[str, Any]
    command: str | None


@dataclass(frozen=True)
class _Metadata:
    """The metadata in the file."""

    config: dict[str, Any]
    labelled: bool
    methods: tuple[Method, ...]
    failures: tuple[dict[str, Any], ...]
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
    force: bool = False,
) -> None:
    """Write a certificates folder so that a reader finds the old certificates or the new ones, complete.

    A CSV file never lies beside certificates that it was not made from: the old ones are removed before the Parquet
    file is replaced, in one step, and the new ones follow.

    Args:
        folder: Where to write; made if it does not exist.
        certificates: What `certify_votes` proved.
        curves: The curves of the certificates, each method in both averagings, and sweeps.
        radius: (radii,), the l2-norms of labels.csv.
        votes: The votes that the certificates are made from.
        source: Which images and which model, as plain JSON values.
        command: The command that made the folder.
        force: Whether to replace certificates that are there.

    >>> import tempfile
    >>> from multiguard import Smoother, TopK, certify_votes, curves, load_classifier, read_votes, vote_dataset
    >>> from multiguard.data import DigitsDataset
    >>> digits = DigitsDataset("test", size=16, images=3)
    >>> network, names = lambda x: x.flatten(1)[:, :10], digits.label_names
    >>> classifier = load_classifier(network, labels=names, output="logits", name="first pixels")
    >>> smoother = Smoother(classifier, sigma=0.5, k_max=2, device="cpu")
    >>> with tempfile.TemporaryDirectory() as home:
    ...     vote_dataset(smoother, digits, f"{home}/votes", draws=20, seed=0)
    ...     votes = read_votes(f"{home}/votes")
    ...     proved = certify_votes(votes, CertifyConfig(TopK(k=10, k_prime=2)))
    ...     write_certificates(f"{home}/c", proved, curves(proved, [0.0]), radius=[0.0], votes=votes)
    ...     read_certificates(f"{home}/c").curves[0].scores.recall  # all ten labels are always returned
    array([1.])
    """
    _check_votes(certificates, votes)
    _check_curves(certificates, curves)
    target, names = Path(folder), (CERTIFICATES_NAME, CURVES_NAME, LABELS_NAME)
    if not force and any((target / name).exists() for name in names):
        raise InvalidInputError(
            f"{target} already holds certificates; --force (force=True) replaces them, or use another folder"
        )
    metadata = {
        "config": config_record(certificates.config),
        "labelled": certificates.labelled,
        "methods": certificates.methods,
        "failures": [asdict(failure) for failure in certificates.failures],
        "provenance": {name: value for name, value in asdict(votes.provenance).items() if name != "image_ids"},
        "votes_sha256": votes.manifest_hash,
        "certified_with": __version__,
        "source": dict(source or {}),
        "command": command,
        "curves": curves_text(curves),
        "label_radius": check_radius(radius).tolist(),
    }
    schema = certificate_schema(certificates.methods, certificates.config.rule)
    require_folder(target)
    with _stage(target) as stage:
        _KIND.write(stage, schema, certificate_columns(certificates), metadata)
        write_curves(stage / CURVES_NAME, curves)
        write_labels(stage / LABELS_NAME, label_scores(certificates, radius))
        for name in (CURVES_NAME, LABELS_NAME):
            (target / name).unlink(missing_ok=True)
        for name in names:
            (stage / name).replace(target / name)
            sync_folder(target)


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """An empty folder for new files, removed at the end: where writing fails, the old files have not been touched."""
    stage = target / _STAGE
    if stage.is_symlink():
        stage.unlink()  # nothing is written, or removed, through a link
    shutil.rmtree(stage, ignore_errors=True)  # a killed writer may have left it
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def read_certificates(folder: str | Path) -> CertificatesFolder:
    """A certificates folder as it was written; a damaged or edited one raises `DataError` naming the file.

    Only certificates.parquet is read; for an example see `write_certificates`.

    Args:
        folder: The folder.
    """
    return _KIND.read(Path(folder), _parse)


def _parse(stored: dict[str, Any], table: pa.Table) -> CertificatesFolder:
    from multiguard.errors import ImageFailure
    from multiguard.votes import Provenance

    metadata = convert(stored, _Metadata)
    run = convert({**metadata.provenance, "image_ids": []}, Provenance)
    config = config_from_record(metadata.config)
    _check_run(config, run)
    methods = check_methods(metadata.methods, config.rule)
    columns = table.cast(certificate_schema(methods, config.rule)).to_pydict()
    certificates = Certificates(
        config=config,
        sigma=run.sigma,
        label_names=run.label_names,
        labelled=metadata.labelled,
        failures=tuple(convert(failure, ImageFailure) for failure in metadata.failures),
        **certificate_fields(columns, run.label_names, methods),
    )
    check_claims(certificates)
    curves = parse_curves(metadata.curves.encode())
    _check_curves(certificates, curves)
    return CertificatesFolder(
        certificates=certificates,
        curves=curves,
        labels=label_scores(certificates, metadata.label_radius),
        provenance=metadata.provenance,
        votes_hash=metadata.votes_sha256,
        certified_with=metadata.certified_with,
        source=metadata.source,
        command=metadata.command,
    )


def _check_votes(certificates: Certificates, votes: Votes) -> None:
    """Raises unless the certificates can be those of the votes, and every label has its own name."""
    run = votes.provenance
    same = certificates.ids == votes.ids and certificates.failures == votes.failures
    same &= certificates.draws == draws_taken(votes, certificates.config)
    if not same or (certificates.labelled and certificates.labels != votes.labels):
        raise InvalidInputError("the certificates are not of the images of these votes; certify these votes")
    if certificates.config.rule.name != run.rule:
        raise InvalidInputError(
            f"the certificates are of the {certificates.config.rule.name} rule, these votes of the {run.rule} rule"
        )
    if (certificates.sigma, certificates.label_names) != (run.sigma, run.label_names):
        raise InvalidInputError("the certificates have another sigma or other labels than these votes")
    name, times = Counter(run.label_names).most_common(1)[0]
    if times > 1:
        raise InvalidInputError(f"{times} labels are named {name!r}; results by name need different names")


def _check_curves(certificates: Certificates, curves: Sequence[Curve]) -> None:
    """Raises unless the curves can be those of the certificates and their sweeps."""
    for curve in curves:
        _check_curve(certificates, curve)
    present = {(curve.method, curve.averaging) for curve in curves if curve.config == certificates.config}
    for method in certificates.methods:
        for averaging in AVERAGINGS:
            if (method, averaging) not in present:
                raise InvalidInputError(
                    f"the curve of the method {method} ({averaging}) in the config of the certificates is missing; "
                    "give all that curves() makes of them"
                )


def _check_curve(certificates: Certificates, curve: Curve) -> None:
    config, images, without = certificates.config, curve.scores.images, curve.scores.without_labels
    labelled = sum(bool(labels) for labels in certificates.labels)
    swept = curve.config != config  # pilot draws may then have chosen labels of other images
    pairs = {
        "the rule": (curve.config.rule.name, config.rule.name),
        "sigma": (curve.sigma, certificates.sigma),
        "the number of failed images": (curve.failed, len(certificates.failures)),
        "the number of images": (images + without, len(certificates.ids)),
        "the number of images with labels": (images, images if swept else labelled),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise InvalidInputError(
                f"a curve is not of these certificates: {name} is {ours}, in the certificates {theirs}; make the "
                "curves of these certificates"
            )


def _check_run(config: CertifyConfig, run: Provenance) -> None:
    """Raises unless votes of this run can be certified with this config, an adaptive run with all of its draws."""
    if config != (replace(config, n=None) if run.looks is not None else config).resolve(run):
        raise ValueError(f"these votes cannot be certified with {config}")
    if not run.sigma > 0 or not run.label_names or len(set(run.label_names)) < len(run.label_names):
        raise ValueError("sigma must be above 0, and every label needs its own name")
    stopping_radii = (run.stopping or {}).get("radii")
    if stopping_radii is not None:
        check_radius(convert(stopping_radii, tuple[float, ...]))
