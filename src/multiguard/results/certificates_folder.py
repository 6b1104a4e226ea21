"""A certificates folder: what was proved, the curves made of it, and where it comes from; whole, or refused."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate.certificates import Certificates, draws_taken
from multiguard.evaluate.curves import AVERAGINGS, Curve
from multiguard.evaluate.scores import LabelScores, label_scores
from multiguard.io.files import file_checksum, require_folder, write_atomically
from multiguard.io.records import checksum
from multiguard.results.described import parse_description
from multiguard.results.fileset import place, replace_together
from multiguard.results.sealed import Description
from multiguard.results.tables import parse_curves, parse_labels, write_curves, write_labels
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.votes import Votes

ROWS_NAME, CURVES_NAME, LABELS_NAME = "certificates.parquet", "curves.csv", "labels.csv"
CERTIFICATES_NAME = "certificates.json"
_HASHED = (ROWS_NAME, CURVES_NAME, LABELS_NAME)
_NAMES = (*_HASHED, CERTIFICATES_NAME)
_DESCRIPTION = Description(
    CERTIFICATES_NAME, "multiguard-certificates", 3, "a certificates folder", "certify the votes anew"
)


@dataclass(frozen=True, eq=False)
class CertificatesFolder:
    """A certificates folder as it was written, every file's hash found right.

    Attributes:
        certificates: What was proved of every image.
        curves: The curves, those of a sweep among them.
        labels: How often each label is certified on its own.
        provenance: Where the votes come from: the fields of their `Provenance` but for the image ids.
        votes_hash: The sha256 of the votes' manifest.
        certified_with: The version of multiguard that certified; None where it was not written down.
        source: Which images and which model, for people and for the report; empty where unknown.
        command: What made the folder, where it was told.
    """

    certificates: Certificates
    curves: list[Curve]
    labels: list[LabelScores]
    provenance: Mapping[str, Any]
    votes_hash: str
    certified_with: str | None
    source: Mapping[str, Any]
    command: str | None


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
    """Write a certificates folder so that a reader finds the old set of files or the new one, never a mix.

    Args:
        folder: Where to write; made if it is not there.
        certificates: What `certify_votes` proved.
        curves: What goes into curves.csv: those of the certificates, each method in both averagings, and sweeps.
        radius: (radii,), the l2-norms of labels.csv.
        votes: The votes that the certificates are made of.
        source: Which images and which model, as plain JSON values.
        command: The command line that made the folder.
        force: Whether to replace certificates that are there.
    """
    target = Path(folder)
    _check_from(certificates, votes)
    _check_curves(certificates, curves)
    labels = label_scores(certificates, radius)
    if not force and any(place(target, name).exists() for name in _NAMES):
        raise InvalidInputError(
            f"{target} holds certificates already; --force (force=True) replaces them, or name another folder"
        )
    require_folder(target)

    def write(part: Path) -> None:
        from multiguard.results.rows import write_rows

        write_rows(part / ROWS_NAME, certificates)
        write_curves(part / CURVES_NAME, curves)
        write_labels(part / LABELS_NAME, labels)
        files = {name: file_checksum(part / name) for name in _HASHED}
        _save(part / CERTIFICATES_NAME, _described(certificates, votes, source or {}, command, files))

    replace_together(target, _NAMES, write)


def read_certificates(folder: str | Path) -> CertificatesFolder:
    """A certificates folder after the hash of every file has been found right; else `DataError` naming the file."""
    target, seen = Path(folder), ""
    while True:
        try:
            return _read(target)
        except DataError as error:
            # What fails twice alike is the folder's fault; anything else may come of its being replaced just now.
            if str(error) == seen:
                raise
            seen = str(error)


def _check_from(certificates: Certificates, votes: Votes) -> None:
    """Raises unless the certificates can be those of the votes, and every label has a name of its own."""
    run = votes.provenance
    of_these = certificates.ids == votes.ids and certificates.failures == votes.failures
    of_these &= certificates.draws == draws_taken(votes, certificates.config)
    if not of_these or (certificates.labelled and certificates.labels != votes.labels):
        raise InvalidInputError("the certificates are not of the images of these votes; certify these votes anew")
    if certificates.rule_name != votes.rule:
        raise InvalidInputError(
            f"the certificates are of the {certificates.rule_name} rule, these votes of the {votes.rule}"
        )
    if (certificates.sigma, certificates.label_names) != (run.sigma, run.label_names):
        raise InvalidInputError("the certificates are of another sigma or other labels than these votes")
    name, times = Counter(run.label_names).most_common(1)[0]
    if times > 1:
        raise InvalidInputError(f"{times} labels are named {name!r}; results by name need different names")


def _check_curves(certificates: Certificates, curves: Sequence[Curve]) -> None:
    """Raises unless the curves can be those of the certificates and their sweeps."""
    own = {(curve.method, curve.averaging) for curve in curves if curve.config == certificates.config}
    for curve in curves:
        _check_curve(certificates, curve)
    for method in certificates.methods:
        for averaging in AVERAGINGS:
            if (method, averaging) not in own:
                raise InvalidInputError(
                    f"no curve of the method {method} ({averaging}) in their own setting comes with the certificates; "
                    "give all that curves() makes of them"
                )


def _check_curve(certificates: Certificates, curve: Curve) -> None:
    if curve.config.rule.name != certificates.rule_name:
        raise InvalidInputError(f"a curve is of {curve.config.rule}, the certificates of {certificates.config.rule}")
    if curve.sigma != certificates.sigma:
        raise InvalidInputError(f"a curve is of sigma {curve.sigma}, the certificates of sigma {certificates.sigma}")
    if curve.failed != len(certificates.failures):
        raise InvalidInputError(
            f"a curve leaves out {curve.failed} images that could not be voted on, the certificates "
            f"{len(certificates.failures)}; make the curves of these certificates"
        )
    images, without = curve.scores.images, curve.scores.without_labels
    labelled = sum(bool(own) for own in certificates.labels)
    moved = curve.config != certificates.config  # pilot draws may then have chosen labels of other images
    if images + without != len(certificates.ids) or not (moved or images == labelled):
        raise InvalidInputError(
            f"a curve averages {images} images and leaves out {without}, but of the {len(certificates.ids)} images "
            f"of the certificates {labelled} have labels; make the curves of these certificates"
        )


def _described(
    certificates: Certificates,
    votes: Votes,
    source: Mapping[str, Any],
    command: str | None,
    files: Mapping[str, str],
) -> dict[str, Any]:
    provenance = asdict(votes.provenance)
    del provenance["image_ids"]
    return {
        "format": _DESCRIPTION.format,
        "version": _DESCRIPTION.version,
        "rule": certificates.rule_name,
        "setting": certificates.config.record,
        "labelled": certificates.labelled,
        "sigma": certificates.sigma,
        "methods": certificates.methods,
        "label_names": certificates.label_names,
        "failures": [asdict(failure) for failure in certificates.failures],
        "provenance": provenance,
        "votes_sha256": votes.manifest_hash,
        "certified_with": __version__,
        "source": dict(source),
        "command": command,
        "files": files,
    }


def _save(path: Path, described: Mapping[str, Any]) -> None:
    """Write the description with the sha256 of all the rest of it, so that an edited one is known."""
    try:
        text = json.dumps({**described, "sha256": checksum(described)}, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"source must be made of plain JSON values: {error}") from error
    write_atomically(path, lambda file: file.write(text.encode()))


def _read(folder: Path) -> CertificatesFolder:
    from multiguard.results.rows import parse_rows

    path = folder / CERTIFICATES_NAME
    said = parse_description(_DESCRIPTION.load(folder), path)
    content = {name: _verified(place(folder, name), said.files.get(name)) for name in _HASHED}
    certificates = parse_rows(content[ROWS_NAME], folder / ROWS_NAME, said)
    found = CertificatesFolder(
        certificates=certificates,
        curves=parse_curves(content[CURVES_NAME], folder / CURVES_NAME),
        labels=parse_labels(content[LABELS_NAME], folder / LABELS_NAME),
        provenance=said.provenance,
        votes_hash=said.votes_sha256,
        certified_with=said.certified_with,
        source=said.source,
        command=said.command,
    )
    _check_together(found, path)
    return found


def _check_together(found: CertificatesFolder, path: Path) -> None:
    """Raises unless the files can be of one set: the curves of these images, the labels of these names."""
    try:
        _check_curves(found.certificates, found.curves)
    except InvalidInputError as error:
        raise DataError(f"{path} and the files beside it do not belong together: {error}") from error
    strange = {one.label for one in found.labels} - set(found.certificates.label_names)
    if strange:
        raise DataError(f"{path} knows no label {min(strange)!r}, which {LABELS_NAME} beside it names")


def _verified(path: Path, sha256: str | None) -> bytes:
    """The bytes of a file, which are those that were written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); certify the votes anew") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} was altered after it was written, or is damaged; certify the votes anew")
    return content
