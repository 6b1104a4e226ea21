"""The table of certificates.parquet: from claims to columns and back, with every claim checked on the way in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Rule, TopK
from multiguard.certify.arrays import Floats
from multiguard.evaluate import Certificates, scores
from multiguard.io.ragged import Ragged, distinct

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_OPTIONAL = ("image_sha256", "bare")  # columns in which an image may have no value


def certificates_schema(methods: Sequence[Method], rule: Rule) -> pa.Schema:
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


def certificates_table(certificates: Certificates) -> pa.Table:
    """The table, with names in place of label indices."""
    import pyarrow as pa

    label_names = pa.array(certificates.label_names, pa.string())

    def rows(values: Any, of: Ragged[Any]) -> Any:
        mask = None if of.missing is None else pa.array(of.missing)
        return pa.ListArray.from_arrays(pa.array(of.offsets, pa.int32()), values, mask=mask)

    def names(labels: Ragged[Any]) -> Any:
        return rows(label_names.take(pa.array(labels.values)), labels)

    def numbers(radii: Ragged[Any]) -> Any:
        return rows(pa.array(radii.values), radii)

    def by_method(radii: Mapping[Method, Ragged[Floats]]) -> Any:
        return pa.StructArray.from_arrays([numbers(each) for each in radii.values()], names=list(radii))

    false_radii, hits = certificates.false_radii, certificates.predicted_hits
    columns = {
        "id": pa.array([*certificates.ids], pa.string()),
        "labels": names(certificates.labels),
        "radii": by_method(certificates.radii),
        **({} if false_radii is None else {"false_radii": by_method(false_radii)}),
        "label_radii": numbers(certificates.label_radii),
        "predicted": names(certificates.predicted),
        "predicted_hits": rows(pa.array(hits.values.astype(np.int64)), hits),
        "draws": pa.array(certificates.draws, pa.int64()),
        "image_sha256": pa.array([*certificates.image_hashes], pa.string()),
        "bare": names(certificates.bare),
    }
    return pa.table(columns, schema=certificates_schema(certificates.methods, certificates.config.rule))


def certificates_fields(
    file: pq.ParquetFile, schema: pa.Schema, names: Sequence[str], methods: Sequence[Method]
) -> dict[str, Any]:
    """The fields of `Certificates` that the file holds; a value that is missing raises `ValueError`."""
    import pyarrow as pa

    batches = ([batch] for batch in file.iter_batches(scores.IMAGES_AT_A_TIME))
    tables = (pa.Table.from_batches(each, file.schema_arrow).cast(schema) for each in chain([[]], batches))
    parts = [_fields(table, names, methods) for table in tables]
    return {name: _joined([part.pop(name) for part in parts]) for name in list(parts[0])}


def _joined(parts: Sequence[Any]) -> Any:
    """The rows of all parts, of each method if they have some."""
    if isinstance(parts[0], dict):
        return {method: Ragged.join([part[method] for part in parts]) for method in parts[0]}
    if isinstance(parts[0], Ragged):
        return Ragged.join(parts)
    return None if parts[0] is None else tuple(chain.from_iterable(parts))


def _fields(table: pa.Table, names: Sequence[str], methods: Sequence[Method]) -> dict[str, Any]:
    def radii(name: str) -> dict[Method, Ragged[Any]]:
        structure = _column(table, name)
        return {method: _numbers(structure.field(method)) for method in methods}

    return {
        "ids": Ragged.of(_column(table, "id").to_pylist(), str),
        "labels": _labels(table, "labels", names),
        "radii": radii("radii"),
        "false_radii": radii("false_radii") if "false_radii" in table.column_names else None,
        "label_radii": _numbers(_column(table, "label_radii")),
        "predicted": _labels(table, "predicted", names),
        "predicted_hits": _numbers(_column(table, "predicted_hits")),
        "draws": tuple(_column(table, "draws").to_pylist()),
        "image_hashes": Ragged.of(_column(table, "image_sha256").to_pylist(), str),
        "bare": _labels(table, "bare", names),
    }


def _column(table: pa.Table, name: str) -> Any:
    """A column as one array; only hashes and what is returned without noise may be missing."""
    import pyarrow as pa

    chunks = table.column(name).chunks
    array = pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field(name).type)
    if array.null_count and name not in _OPTIONAL:
        raise ValueError(f"an image has no value in the column {name}")
    return array


def _numbers(array: Any) -> Ragged[Any]:
    values, offsets, missing = _rows(array)
    if missing.any():
        raise ValueError("a value is missing")
    return Ragged(values.to_numpy(), offsets)


def _labels(table: pa.Table, name: str, names: Sequence[str]) -> Ragged[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    values, offsets, missing = _rows(_column(table, name))
    indices = pc.index_in(values, value_set=pa.array(names, pa.string()))
    if indices.null_count:
        raise ValueError(f"{name} has a label that the votes do not have")
    return Ragged(indices.to_numpy().astype(np.min_scalar_type(len(names))), offsets, missing)


def _rows(array: Any) -> tuple[Any, NDArray[np.int64], NDArray[np.bool_]]:
    """The values of all rows, where each row begins and ends, and which rows are missing."""
    import pyarrow.compute as pc

    values = array.flatten()
    if values.null_count:
        raise ValueError("a value is missing")
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), missing


def check_claims(certificates: Certificates) -> None:
    """Raises `ValueError` unless every image's claims have the form in which they are proved.

    Only the form is checked: a forger who knows the formulas can write other radii and their checksum.
    """
    if not distinct(chain(certificates.ids, (failure.image_id for failure in certificates.failures))):
        raise ValueError("an image appears twice")
    for part in certificates.parts():
        for index in np.flatnonzero(_suspicious(part)).tolist():
            try:
                _check_image(part, index)
            except ValueError as error:
                raise ValueError(f"image {part.ids[index]!r}: {error}") from error


def _suspicious(certificates: Certificates) -> NDArray[np.bool_]:
    """(images,) whether something is wrong with the claims of each image, all of them at once."""
    rule, d, draws = certificates.config.rule, certificates.labels.lengths, np.array(certificates.draws)
    bare, hits = certificates.bare, certificates.predicted_hits
    sizes = np.minimum(d, rule.k) if isinstance(rule, TopK) else d
    bad = (draws < 1) | (draws > certificates.config.draws) | _repeats(certificates.labels) | _repeats(bare)
    for radii in certificates.radii.values():
        bad |= _wrong_radii(radii, sizes) | _any(radii, _before(radii.values, np.less), last=False)
    for radii in (certificates.false_radii or {}).values():
        others = len(certificates.label_names) - d
        bad |= _wrong_radii(radii, others) | _any(radii, _before(radii.values, np.greater), last=False)
    bad |= _wrong_radii(certificates.label_radii, d) | (hits.lengths != certificates.predicted.lengths)
    bad |= _any(hits, (hits.values < 1) | (hits.values > np.repeat(draws, hits.lengths)))
    if isinstance(rule, TopK):
        bad |= (bare.lengths != rule.k) & (True if bare.missing is None else ~bare.missing)
    found: NDArray[np.bool_] = bad
    return found


def _wrong_radii(radii: Ragged[Floats], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(images,) whether there are not so many radii, or one is neither a number that is not negative nor -inf."""
    wrong: NDArray[np.bool_] = radii.lengths != sizes
    return wrong | _any(radii, ~((radii.values >= 0) | np.isneginf(radii.values)))


def _repeats(labels: Ragged[Any]) -> NDArray[np.bool_]:
    """(images,) whether a label appears twice."""
    order = np.lexsort((labels.values, np.repeat(np.arange(len(labels)), labels.lengths)))
    return _any(labels, _before(labels.values[order], np.equal), last=False)


def _before(values: NDArray[Any], compare: Callable[..., Any]) -> NDArray[np.bool_]:
    """Whether the comparison holds of each value and the next one; of the last one it does not."""
    holds: NDArray[np.bool_] = np.append(compare(values[:-1], values[1:]), False)
    return holds


def _any(rows: Ragged[Any], holds: NDArray[np.bool_], *, last: bool = True) -> NDArray[np.bool_]:
    """(images,) whether it holds of a value of the row; of its `last` one, too."""
    if not last:
        holds = holds.copy()
        holds[rows.offsets[1:][rows.lengths > 0] - 1] = False
    found: NDArray[np.bool_] = np.diff(np.concatenate([[0], np.cumsum(holds)])[rows.offsets]) > 0
    return found


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
    if len(hits) != len(certificates.predicted[index]) or not all(1 <= hit <= draws for hit in hits):
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
