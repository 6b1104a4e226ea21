"""certificates.parquet, with curves.csv next to it.

The Parquet file alone holds everything: the table of the certificates, and in its metadata the config, the curves and
where all of it comes from. The CSV file is a copy for people; nothing reads it back.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from multiguard.certify.arguments import Floats
from multiguard.certify.noise import Noise
from multiguard.certify.rules import check_method
from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate.certificates import Certificates, certificates_schema
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.curves import Curve
from multiguard.evaluate.parquet_tables import TableKind
from multiguard.evaluate.results import Results
from multiguard.evaluate.scores import IMAGES_AT_A_TIME, check_radius
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import file_checksum
from multiguard.io.records import Rows, convert
from multiguard.io.writer import staged

if TYPE_CHECKING:
    import pyarrow as pa

    from multiguard.votes import Provenance

CERTIFICATES_NAME, CURVES_NAME = "certificates.parquet", "curves.csv"
_KIND = TableKind(CERTIFICATES_NAME, "multiguard-certificates", 11, "a certificates folder", "certify the votes again")
_COLUMNS = (
    *("method", "k", "k_prime", "alpha", "n", "R", "averaging", "precision", "recall", "f1"),
    *("images", "without_labels", "failed", "noise", "attacker", "rule", "threshold", "mean_draws"),
    *("true_floor", "false_ceiling"),
)
_SCORES = ("precision", "recall", "f1")
_BAND_COLUMNS = (
    *(f"{score}_{end}" for score in _SCORES for end in ("low", "high")),
    *(f"{score}_{of}" for of in ("test_set", "population") for score in _SCORES),
)


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
    curves: tuple[dict[str, Any], ...]


def write_certificates(results: Results, folder: str | Path, *, force: bool = False) -> Results:
    """Write a certificates folder so that a reader finds the old certificates or the new ones, complete.

    Returns the results with the sha256 of the file. A CSV file never lies next to certificates that it was not made
    from, and with `force` or without, files that multiguard did not write are never replaced.
    """
    return kept_results(Path(folder), None, lambda: results, force=force)


def kept_results(out: Path, request: Mapping[str, Any] | None, make: Callable[[], Results], *, force: bool) -> Results:
    """The results in the folder, if they answer this request; otherwise those that `make` makes, written there."""
    with staged(out / CERTIFICATES_NAME, request, kind="certificates", names=[CURVES_NAME], force=force) as stage:
        if stage is not None:
            return _stage(stage, make())
    return read_certificates(out)


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
    record = _Metadata(
        to_tree(proved.config),
        proved.labelled,
        proved.failures,
        dict(results.provenance),
        results.votes_hash,
        results.certified_with,
        dict(results.source),
        results.command,
        tuple(msgspec.to_builtins(curve, enc_hook=_plain) for curve in results.curves),
    )
    _KIND.write(stage, proved.table, vars(record), IMAGES_AT_A_TIME)
    (stage / CURVES_NAME).write_text(curves_text(results.curves), encoding="utf-8", newline="")
    return replace(results, certificates_hash=file_checksum(stage / CERTIFICATES_NAME))


def _plain(value: Any) -> Any:
    """An array as a list, and noise as its text."""
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _parse(stored: dict[str, Any], table: pa.Table, digest: str) -> Results:
    from multiguard.votes import Provenance

    metadata = convert(stored, _Metadata)
    run = convert({**metadata.provenance, "image_ids": []}, Provenance)
    config = from_tree(CertifyConfig, metadata.config)
    _check_run(config, run)
    schema = certificates_schema(config.methods, config.rule)
    rows = table.select(schema.names).cast(schema)
    certificates = Certificates(config, run.noise, run.label_names, metadata.labelled, rows, metadata.failures)
    _check_claims(certificates)
    return Results(
        certificates,
        [_read_curve(one, run.noise) for one in metadata.curves],
        metadata.provenance,
        metadata.votes_sha256,
        metadata.certified_with,
        metadata.source,
        metadata.command,
        digest,
    )


def _as_array(_: Any, value: Any) -> Any:
    return np.array(value, np.float64) if isinstance(value, list) else value


def _read_curve(stored: dict[str, Any], noise: Noise) -> Curve:
    config = from_tree(CertifyConfig, stored["config"])
    curve = msgspec.convert({**stored, "config": config, "noise": noise}, Curve, dec_hook=_as_array)
    radius, columns = check_radius(curve.scores.radius, noise), _curve_columns(curve).values()
    if not all(each.shape == radius.shape and np.all((each >= 0) & np.isfinite(each)) for each in columns):
        raise ValueError("a curve has more numbers than radii, or one that is negative or not finite")
    check_method(curve.method, config.rule, noise)
    return curve


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


def _check_claims(certificates: Certificates) -> None:
    """Raises `ValueError` unless the claims have the form in which they are proved.

    Only the form is checked: a forger who knows the formulas can write other radii.
    """
    ids = [*certificates.ids, *(failure.image_id for failure in certificates.failures)]
    if len(set(ids)) < len(ids):
        raise ValueError("an image appears twice")
    c, d, draws = len(certificates.label_names), certificates.labels.lengths, np.array(certificates.draws)
    labels, predicted, hits = certificates.labels, certificates.predicted, certificates.predicted_hits
    sizes = np.array([certificates.config.rule.sizes(count) for count in range(c + 1)])
    indices = [each.array.flatten() for each in (labels, predicted, certificates.bare)]
    missing = any(each.null_count for each in (labels.array, predicted.array, *indices))
    if missing or any(np.any(each.to_numpy() >= c) for each in indices) or np.any(d > c):
        raise ValueError("an image has a label that the votes do not have")
    wrong = (draws < 1) | (draws > (certificates.config.draws or 0)) | (hits.lengths != predicted.lengths)
    wrong |= _any(hits, ~((hits.values >= 1) & (hits.values <= np.repeat(draws, hits.lengths))))
    wrong |= _are_wrong(certificates.label_radii, d)
    for radii in certificates.radii.values():
        wrong |= _are_wrong(radii, sizes[d], np.greater)
    for radii in (certificates.false_radii or {}).values():
        wrong |= _are_wrong(radii, c - d, np.less)
    if np.any(wrong):
        name = certificates.ids[int(np.argmax(wrong))]
        raise ValueError(f"image {name!r}: its claims are not of the form that is proved")


def _are_wrong(
    radii: Rows[Floats], sizes: NDArray[np.int64], disordered: Callable[..., Any] | None = None
) -> NDArray[np.bool_]:
    """(images,) whether the number of radii is wrong, one is negative but not -inf, or two are out of order."""
    values, row = radii.values, np.repeat(np.arange(len(radii)), radii.lengths)
    bad = ~((values >= 0) | np.isneginf(values))
    if disordered is not None:
        bad[1:] |= disordered(values[1:], values[:-1]) & (row[1:] == row[:-1])
    wrong: NDArray[np.bool_] = radii.lengths != sizes
    return wrong | _any(radii, bad)


def _any(rows: Rows[Any], holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(images,) whether it holds of a value of the row."""
    found: NDArray[np.bool_] = np.diff(np.concatenate([[0], np.cumsum(holds)])[rows.offsets]) > 0
    return found


def curves_text(curves: Sequence[Curve]) -> str:
    """The content of curves.csv: no two curves may have the same method, config, noise and averaging.

    Every number is written so that it reads back as the number it is.
    """
    keys = Counter((curve.method, curve.config, curve.noise, curve.averaging) for curve in curves)
    repeated = next((key for key, count in keys.items() if count > 1), None)
    if repeated is not None:
        raise InvalidInputError(f"two curves have the same method, config, noise and averaging: {repeated}; give one")
    banded = any(curve.bands is not None for curve in curves)
    columns = (*_COLUMNS, "level", *_BAND_COLUMNS) if banded else _COLUMNS
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for curve in curves for row in _curve_rows(curve))
    return text.getvalue()


def _curve_columns(curve: Curve) -> dict[str, Floats]:
    """The numbers of a curve at each radius, by the name of their column."""
    scores, bands = curve.scores, curve.bands
    columns = {"R": scores.radius, "precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
    columns |= {"true_floor": scores.true_floor, "false_ceiling": scores.false_ceiling}
    if bands is not None:
        values = *bands.precision, *bands.recall, *bands.f1, *bands.test_set, *bands.population
        columns |= dict(zip(_BAND_COLUMNS, values, strict=True))
    return columns


def _curve_rows(curve: Curve) -> Iterator[dict[str, object]]:
    same = {
        "method": curve.method,
        "rule": curve.config.rule.name,
        **curve.config.parameters,
        "averaging": curve.averaging,
        "noise": curve.noise,
        "attacker": curve.noise.attacker,
        "images": curve.scores.images,
        "without_labels": curve.scores.without_labels,
        "failed": curve.failed,
        "mean_draws": curve.mean_draws,
        **({} if curve.bands is None else {"level": curve.bands.level}),
    }
    columns = _curve_columns(curve)
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield {**same, **dict(zip(columns, values, strict=True))}
