"""certificates.parquet, with curves.csv and labels.csv beside it.

The Parquet file alone holds everything: the claims of each image, and in its metadata the config, the curves and where
all of it comes from. The CSV files are copies for people; nothing reads them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.arrays import Floats
from multiguard.certify.rules import check_method
from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate.certificates import Certificates, as_array, certificates_schema
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.csv_tables import curve_columns, curves_text, labels_text
from multiguard.evaluate.curves import Curve
from multiguard.evaluate.intervals import Bands
from multiguard.evaluate.parquet_tables import TableKind
from multiguard.evaluate.results import Results
from multiguard.evaluate.scores import Averaging, Scores, check_radius
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import file_checksum
from multiguard.io.records import convert
from multiguard.io.rows import Rows
from multiguard.io.writer import staged

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from multiguard.votes import Provenance

CERTIFICATES_NAME, CURVES_NAME, LABELS_NAME = "certificates.parquet", "curves.csv", "labels.csv"
_KIND = TableKind(CERTIFICATES_NAME, "multiguard-certificates", 9, "a certificates folder", "certify the votes again")
_NAMES = ("labels", "predicted", "bare")  # columns of labels: names in the file, indices in memory


@dataclass(frozen=True)
class _Curve:
    """A curve in the metadata of the file."""

    method: str
    config: dict[str, Any]
    averaging: Averaging
    images: int
    without_labels: int
    failed: int
    mean_draws: float
    level: float | None  # the confidence of its bands
    columns: dict[str, tuple[float, ...]]  # its numbers at each radius


@dataclass(frozen=True)
class _Metadata:
    """The metadata in the file."""

    config: dict[str, Any]
    labelled: bool
    failures: tuple[ImageFailure, ...]
    provenance: dict[str, Any]
    votes_sha256: str
    certified_with: str
    source: dict[str, Any]
    command: str | None
    curves: tuple[_Curve, ...]


def kept_results(out: Path, request: Mapping[str, Any], make: Callable[[], Results], *, force: bool) -> Results:
    """The results in the folder, if they answer this request; otherwise those that `make` makes, written there."""
    with certificates_stage(out, request, force=force) as stage:
        if stage is not None:
            return _stage(stage, make())
    return read_certificates(out)


def write_certificates(
    results: Results, folder: str | Path, *, request: Mapping[str, Any] | None = None, force: bool = False
) -> Results:
    """Write a certificates folder so that a reader finds the old certificates or the new ones, complete.

    A CSV file never lies beside certificates that it was not made from. Files that multiguard did not write are never
    replaced.

    Args:
        results: What `certify_votes` returns.
        folder: Where to write; made if it does not exist.
        request: Everything that decides the certificates; those of the same request are replaced without `force`.
        force: Whether to replace certificates that are there, and to write beside files of somebody else.

    Returns:
        The results with the sha256 of the file.

    >>> from multiguard import CertifyConfig, certify_votes, read_votes
    >>> results = certify_votes(CertifyConfig(k=10, k_prime=3), read_votes(folder))  # a folder with votes of 5 images
    >>> written = write_certificates(results, out)
    >>> read_certificates(out).certificates.table == results.certificates.table
    True
    """
    with certificates_stage(Path(folder), request, force=force) as stage:
        if stage is not None:
            return _stage(stage, results)
    return read_certificates(folder)


def certificates_stage(
    folder: Path, request: Mapping[str, Any] | None = None, *, force: bool = False
) -> AbstractContextManager[Path | None]:
    """A private folder for the files of a certificates folder; see `staged`."""
    names = (CURVES_NAME, LABELS_NAME)
    return staged(folder / CERTIFICATES_NAME, request, kind="certificates", names=names, force=force)


def read_certificates(folder: str | Path) -> Results:
    """A certificates folder as it was written; a damaged one raises `DataError` naming the file.

    Only certificates.parquet is read. Whether its claims are those that the votes prove `multiguard verify` checks.

    >>> read_certificates(out)  # for what it returns see `write_certificates`
    Traceback (most recent call last):
    multiguard.errors.DataError: ... is not a certificates folder: it has no certificates.parquet
    """
    return _KIND.read(Path(folder), _parse)


def _stage(stage: Path, results: Results) -> Results:
    """Write the files to the staged folder; the results with the sha256 of the one that counts."""
    proved = results.certificates
    name, times = Counter(proved.label_names).most_common(1)[0]
    if times > 1:
        raise InvalidInputError(f"{times} labels are named {name!r}; results by name need different names")
    schema = _file_schema(proved)
    _KIND.write(stage / CERTIFICATES_NAME, schema, (_named(part, schema) for part in proved.parts()), _record(results))
    (stage / CURVES_NAME).write_text(curves_text(results.curves), encoding="utf-8", newline="")
    (stage / LABELS_NAME).write_text(labels_text(results.labels, proved.noise), encoding="utf-8", newline="")
    return replace(results, certificates_hash=file_checksum(stage / CERTIFICATES_NAME))


def _record(results: Results) -> dict[str, Any]:
    proved = results.certificates
    return {
        "config": to_tree(proved.config),
        "labelled": proved.labelled,
        "failures": proved.failures,
        "provenance": results.provenance,
        "votes_sha256": results.votes_hash,
        "certified_with": results.certified_with,
        "source": results.source,
        "command": results.command,
        "curves": [_curve_record(curve) for curve in results.curves],
    }


def _curve_record(curve: Curve) -> _Curve:
    return _Curve(
        curve.method,
        to_tree(curve.config),
        curve.averaging,
        curve.scores.images,
        curve.scores.without_labels,
        curve.failed,
        curve.mean_draws,
        None if curve.bands is None else curve.bands.level,
        {name: tuple(column.tolist()) for name, column in curve_columns(curve).items()},
    )


def _parse(stored: dict[str, Any], file: pq.ParquetFile, digest: str) -> Results:
    from multiguard.votes import Provenance

    metadata = convert(stored, _Metadata)
    run = convert({**metadata.provenance, "image_ids": []}, Provenance)
    config = from_tree(CertifyConfig, metadata.config)
    _check_run(config, run)
    table = _indexed(file, certificates_schema(config.methods, config.rule), run.label_names)
    certificates = Certificates(config, run.noise, run.label_names, metadata.labelled, table, metadata.failures)
    check_claims(certificates)
    return Results(
        certificates,
        [_curve(one, run) for one in metadata.curves],
        metadata.provenance,
        metadata.votes_sha256,
        metadata.certified_with,
        metadata.source,
        metadata.command,
        digest,
    )


def _curve(stored: _Curve, run: Provenance) -> Curve:
    config, noise = from_tree(CertifyConfig, stored.config), run.noise
    columns = {name: _numbers(name, values) for name, values in stored.columns.items()}
    radius = check_radius(columns["R"], noise)
    if {len(column) for column in columns.values()} != {len(radius)}:
        raise ValueError("a curve has more numbers than radii")
    precision, recall, f1 = columns["precision"], columns["recall"], columns["f1"]
    floor, ceiling = columns["true_floor"], columns["false_ceiling"]
    scores = Scores(radius, precision, recall, f1, floor, ceiling, stored.images, stored.without_labels)
    bands = None
    if stored.level is not None:
        pairs = [(columns[f"{name}_low"], columns[f"{name}_high"]) for name in ("precision", "recall", "f1")]
        bands = Bands(stored.level, *pairs)
    method = check_method(stored.method, config.rule, noise)
    return Curve(method, config, noise, stored.averaging, scores, stored.mean_draws, stored.failed, bands)


def _numbers(name: str, values: Sequence[float]) -> Floats:
    numbers = np.array(values, np.float64)
    if not np.all((numbers >= 0) & np.isfinite(numbers)):
        raise ValueError(f"a curve has a {name} that is negative or not finite")
    return numbers


def _check_run(config: CertifyConfig, run: Provenance) -> None:
    """Raises unless votes of this run can be certified with this config, an adaptive run with all of its draws."""
    given = config.replace(draws=None) if run.stops is not None else config
    if config != given.resolve(run):
        raise ValueError("these votes cannot be certified with its config")
    if not run.label_names or len(set(run.label_names)) < len(run.label_names):
        raise ValueError("every label needs its own name")
    stopping_radii = (run.stopping or {}).get("radii")
    if stopping_radii is not None:
        check_radius(convert(stopping_radii, tuple[float, ...]), run.noise)


def _file_schema(certificates: Certificates) -> pa.Schema:
    """The columns of the file, with names in place of label indices."""
    import pyarrow as pa

    return certificates_schema(certificates.methods, certificates.config.rule, pa.string())


def _named(certificates: Certificates, schema: pa.Schema) -> pa.Table:
    """The table with names in place of label indices."""
    import pyarrow as pa

    table, label_names = certificates.table, pa.array(certificates.label_names, pa.string())
    for name in _NAMES:
        rows: Rows[Any] = Rows(as_array(table, name))
        lists = _lists(rows, label_names.take(rows.array.flatten()))
        table = table.set_column(table.column_names.index(name), name, lists)
    return table.cast(schema)


def _indexed(file: pq.ParquetFile, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """The table of the file, with indices in place of label names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    label_names, table = pa.array(names, pa.string()), file.read()
    for name in _NAMES:
        rows: Rows[Any] = Rows(as_array(table, name))
        indices: Any = pc.index_in(rows.array.flatten(), value_set=label_names)
        if indices.null_count:
            raise ValueError(f"{name} has a label that the votes do not have")
        table = table.set_column(table.column_names.index(name), name, _lists(rows, indices.cast(pa.uint16())))
    return table.select(schema.names).cast(schema)


def _lists(rows: Rows[Any], values: Any) -> Any:
    """Lists of these values, in place of those of the rows."""
    import pyarrow as pa

    mask = pa.array(rows.missing) if rows.array.null_count else None
    offsets: Any = pa.array(rows.offsets)
    return pa.LargeListArray.from_arrays(offsets, values, mask=mask)


def check_claims(certificates: Certificates) -> None:
    """Raises `ValueError` unless the claims have the form in which they are proved: what damage could change unseen.

    Only the form is checked: a forger who knows the formulas can write other radii.
    """
    import pyarrow.compute as pc

    failed = [failure.image_id for failure in certificates.failures]
    ids = certificates.ids.array
    if (
        ids.null_count
        or pc.count_distinct(ids).as_py() < len(ids)
        or pc.any(pc.is_in(ids, Rows.of(failed, str).array)).as_py()
    ):
        raise ValueError("an image appears twice, or has no id")
    wrong = np.flatnonzero(_wrong(certificates))
    if len(wrong):
        raise ValueError(f"image {certificates.ids[int(wrong[0])]!r}: its claims are not of the form that is proved")


def _wrong(certificates: Certificates) -> NDArray[np.bool_]:
    """(images,) whether something is wrong with the claims of each image."""
    rule, d, draws = certificates.config.rule, certificates.labels.lengths, np.array(certificates.draws)
    bare, hits, others = certificates.bare, certificates.predicted_hits, len(certificates.label_names) - d
    sizes = np.array([rule.sizes(count) for count in range(len(certificates.label_names) + 1)])
    bad = (draws < 1) | (draws > (certificates.config.draws or 0)) | (hits.lengths != certificates.predicted.lengths)
    for radii in certificates.radii.values():
        bad |= _wrong_radii(radii, sizes[d]) | _neighbours(radii, np.less)
    for radii in (certificates.false_radii or {}).values():
        bad |= _wrong_radii(radii, others) | _neighbours(radii, np.greater)
    bad |= _wrong_radii(certificates.label_radii, d) | _repeats(certificates.labels) | _repeats(bare)
    bad |= _any(hits, (hits.values < 1) | (hits.values > np.repeat(draws, hits.lengths)))
    found: NDArray[np.bool_] = bad
    return found


def _wrong_radii(radii: Rows[Floats], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(images,) whether there are not so many radii, or one is neither a number that is not negative nor -inf."""
    wrong: NDArray[np.bool_] = radii.lengths != sizes
    return wrong | _any(radii, ~((radii.values >= 0) | np.isneginf(radii.values)))


def _repeats(labels: Rows[Any]) -> NDArray[np.bool_]:
    """(images,) whether a label appears twice."""
    rows = np.repeat(np.arange(len(labels)), labels.lengths)
    order = np.lexsort((labels.values, rows))
    values, again = labels.values[order], np.zeros(len(rows), np.bool_)
    again[1:] = (values[1:] == values[:-1]) & (rows[1:] == rows[:-1])
    return _any(labels, again)


def _neighbours(rows: Rows[Floats], compare: Callable[..., Any]) -> NDArray[np.bool_]:
    """(images,) whether the comparison holds of some value of the row and the next one."""
    row, holds = np.repeat(np.arange(len(rows)), rows.lengths), np.zeros(len(rows.values), np.bool_)
    holds[1:] = compare(rows.values[:-1], rows.values[1:]) & (row[1:] == row[:-1])
    return _any(rows, holds)


def _any(rows: Rows[Any], holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(images,) whether it holds of a value of the row."""
    found: NDArray[np.bool_] = np.diff(np.concatenate([[0], np.cumsum(holds)])[rows.offsets]) > 0
    return found
