"""certificates.parquet, with curves.csv and labels.csv beside it.

The Parquet file alone holds everything: the claims of each image, and in its metadata the curves and where all of it
comes from. The CSV files are copies for people; nothing reads them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method, Rule, TopK
from multiguard.certify.arrays import Floats
from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate import Certificates, CertifyConfig, Curve, label_scores
from multiguard.evaluate.certificates import draws_taken
from multiguard.evaluate.certifier import resolve_methods
from multiguard.evaluate.scores import check_radius
from multiguard.io.outputs import Outputs
from multiguard.io.records import convert
from multiguard.results.curve_files import check_curves, curves_text, parse_curves, write_curves, write_labels
from multiguard.results.run_results import Results
from multiguard.results.table_file import TableKind, config_record, parse_config
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from multiguard.votes import Provenance, Votes

CERTIFICATES_NAME, CURVES_NAME, LABELS_NAME = "certificates.parquet", "curves.csv", "labels.csv"
_KIND = TableKind(CERTIFICATES_NAME, "multiguard-certificates", 7, "a certificates folder", "certify the votes again")


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
    schema = _schema(certificates.methods, certificates.config.rule)
    with certificates_outputs(Path(folder), request, force=force) as outputs:
        stage = outputs.stage(Path(folder))
        _KIND.write(stage, schema, certificate_columns(certificates), metadata)
        write_curves(stage / CURVES_NAME, curves)
        write_labels(stage / LABELS_NAME, label_scores(certificates, radius), certificates.noise)
        outputs.publish()


def certificates_outputs(folder: Path, request: Mapping[str, Any] | None = None, *, force: bool = False) -> Outputs:
    """The files of a certificates folder, to be written for this request; see `Outputs`."""
    more: dict[str, Any] = {"names": (CURVES_NAME, LABELS_NAME), "recognise": _KIND.recognises, "force": force}
    return Outputs(folder / CERTIFICATES_NAME, "certificates", request, **more)


def read_certificates(folder: str | Path) -> Results:
    """A certificates folder as it was written; a damaged or edited one raises `DataError` naming the file.

    Only certificates.parquet is read.

    >>> read_certificates(out)  # for what it returns see `write_certificates`
    Traceback (most recent call last):
    multiguard.errors.DataError: ... is not a certificates folder: it has no certificates.parquet
    """
    return _KIND.read(Path(folder), _parse)


def _parse(stored: dict[str, Any], table: pa.Table) -> Results:
    from multiguard.votes import Provenance

    metadata = convert(stored, _Metadata)
    run = convert({**metadata.provenance, "image_ids": []}, Provenance)
    config = parse_config(metadata.config)
    _check_run(config, run)
    methods = resolve_methods(metadata.methods, config.rule, run)
    columns = table.cast(_schema(methods, config.rule)).to_pydict()
    fields = _fields(columns, run.label_names, methods)
    fields |= {"config": config, "labelled": metadata.labelled, "failures": metadata.failures}
    certificates = Certificates(noise=run.noise, label_names=run.label_names, **fields)
    _check_claims(certificates)
    curves = parse_curves(metadata.curves.encode())
    check_curves(certificates, curves)
    labels = label_scores(certificates, metadata.label_radius)
    same = {name: getattr(metadata, name) for name in ("provenance", "certified_with", "source", "command")}
    return Results(certificates, curves, labels, votes_hash=metadata.votes_sha256, **same)


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


def _schema(methods: Sequence[Method], rule: Rule) -> pa.Schema:
    """The columns; `false_radii` is there for the threshold rule only."""
    import pyarrow as pa

    numbers, names, count = pa.list_(pa.float64()), pa.list_(pa.string()), pa.int64()
    by_method = pa.struct([(method, numbers) for method in methods])
    ceilings = [] if isinstance(rule, TopK) else [("false_radii", by_method)]
    columns: list[tuple[str, pa.DataType]] = [
        *(("id", pa.string()), ("labels", names), ("radii", by_method), *ceilings, ("label_radii", numbers)),
        *(("predicted", names), ("predicted_hits", pa.list_(count)), ("draws", count), ("image_sha256", pa.string())),
        ("bare", names),
    ]
    return pa.schema(columns)


def certificate_columns(certificates: Certificates) -> dict[str, list[Any]]:
    """The table, with names in place of label indices."""

    def names(labels: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[certificates.label_names[label] for label in own] for own in labels]

    def by_method(radii: Mapping[Method, Sequence[Floats]]) -> list[dict[Method, list[float]]]:
        return [{m: each[index].tolist() for m, each in radii.items()} for index in range(len(certificates.ids))]

    false_radii = certificates.false_radii
    return {
        "id": list(certificates.ids),
        "labels": names(certificates.labels),
        "radii": by_method(certificates.radii),
        **({} if false_radii is None else {"false_radii": by_method(false_radii)}),
        "label_radii": [radii.tolist() for radii in certificates.label_radii],
        "predicted": names(certificates.predicted),
        "predicted_hits": [list(hits) for hits in certificates.predicted_hits],
        "draws": list(certificates.draws),
        "image_sha256": list(certificates.image_hashes),
        "bare": [None if own is None else names([own])[0] for own in certificates.bare],
    }


def _fields(columns: dict[str, Any], names: Sequence[str], methods: Sequence[Method]) -> dict[str, Any]:
    """The fields of `Certificates` that the table holds."""
    index = {name: label for label, name in enumerate(names)}

    def labels(column: str) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(index[name] for name in own) for own in columns[column])

    def radii(column: str) -> dict[Method, tuple[Floats, ...]]:
        return {method: tuple(np.array(row[method], np.float64) for row in columns[column]) for method in methods}

    return {
        "ids": tuple(columns["id"]),
        "labels": labels("labels"),
        "radii": radii("radii"),
        "false_radii": radii("false_radii") if "false_radii" in columns else None,
        "label_radii": tuple(np.array(own, np.float64) for own in columns["label_radii"]),
        "predicted": labels("predicted"),
        "predicted_hits": tuple(tuple(hits) for hits in columns["predicted_hits"]),
        "draws": tuple(columns["draws"]),
        "image_hashes": tuple(columns["image_sha256"]),
        "bare": tuple(None if own is None else tuple(index[name] for name in own) for own in columns["bare"]),
    }


def _check_claims(certificates: Certificates) -> None:
    """Raises `ValueError` unless every image's claims have the form in which they are proved.

    Only the form is checked: a forger who knows the formulas can write other radii and their checksum.
    """
    ids = [*certificates.ids, *(failure.image_id for failure in certificates.failures)]
    if len(set(ids)) < len(ids):
        raise ValueError("an image appears twice")
    for index, name in enumerate(certificates.ids):
        try:
            _check_image(certificates, index)
        except ValueError as error:
            raise ValueError(f"image {name!r}: {error}") from error


def _check_image(certificates: Certificates, index: int) -> None:
    rule, labels, draws = certificates.config.rule, certificates.labels[index], certificates.draws[index]
    if len(set(labels)) < len(labels):
        raise ValueError("a label appears twice")
    if not 1 <= draws <= certificates.config.draws:
        raise ValueError(f"{draws} draws, expected 1 to {certificates.config.draws}")
    sizes = min(len(labels), rule.k) if isinstance(rule, TopK) else len(labels)
    for radii in certificates.radii.values():
        _check_radii(radii[index][::-1], sizes, rising=True)
    for radii in (certificates.false_radii or {}).values():
        _check_radii(radii[index], len(certificates.label_names) - len(labels), rising=True)
    _check_radii(certificates.label_radii[index], len(labels), rising=False)
    hits = certificates.predicted_hits[index]
    if len(hits) != len(certificates.predicted[index]) or not all(0 <= hit <= draws for hit in hits):
        raise ValueError("the predicted labels do not have one number of hits each")
    bare = certificates.bare[index]
    if bare is not None and (len(set(bare)) < len(bare) or (isinstance(rule, TopK) and len(bare) != rule.k)):
        raise ValueError(f"{len(bare)} labels without noise, expected {rule}")


def _check_radii(radii: Floats, count: int, *, rising: bool) -> None:
    """Raises unless these are `count` radii: numbers that are not negative, or -inf where nothing is proved."""
    if radii.shape != (count,) or not np.all((radii >= 0) | np.isneginf(radii)):
        raise ValueError(f"expected {count} radii, none of them negative, not {radii.tolist()}")
    if rising and np.any(radii[1:] < radii[:-1]):
        raise ValueError("the radii are not in order")
