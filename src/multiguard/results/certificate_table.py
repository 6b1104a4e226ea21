"""The rows of certificates.parquet: label names in place of indices, and the form that claims must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import Method, Rule, TopK
from multiguard.certify.arrays import Floats
from multiguard.evaluate import Certificates

if TYPE_CHECKING:
    import pyarrow as pa


def certificate_schema(methods: Sequence[Method], rule: Rule) -> pa.Schema:
    """The columns; `false_radii` is there for the threshold rule only."""
    import pyarrow as pa

    numbers, names, count = pa.list_(pa.float64()), pa.list_(pa.string()), pa.int64()
    by_method = pa.struct([(method, numbers) for method in methods])
    ceilings = [] if isinstance(rule, TopK) else [("false_radii", by_method)]
    columns: list[tuple[str, pa.DataType]] = [
        *(("id", pa.string()), ("labels", names), ("radii", by_method), *ceilings, ("label_radii", numbers)),
        *(("predicted", names), ("predicted_hits", pa.list_(count)), ("draws", count), ("image_sha256", pa.string())),
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
    }


def certificate_fields(
    columns: Mapping[str, list[Any]], names: Sequence[str], methods: Sequence[Method]
) -> dict[str, Any]:
    """The fields of `Certificates` that the table holds."""
    index = {name: label for label, name in enumerate(names)}

    def labels(column: str) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(index[name] for name in own) for own in columns[column])

    def radii(column: str) -> dict[Method, tuple[Floats, ...]] | None:
        rows = columns.get(column)
        if rows is None:
            return None
        return {method: tuple(np.array(row[method], np.float64) for row in rows) for method in methods}

    return {
        "ids": tuple(columns["id"]),
        "labels": labels("labels"),
        "radii": radii("radii"),
        "false_radii": radii("false_radii"),
        "label_radii": tuple(np.array(own, np.float64) for own in columns["label_radii"]),
        "predicted": labels("predicted"),
        "predicted_hits": tuple(tuple(hits) for hits in columns["predicted_hits"]),
        "draws": tuple(columns["draws"]),
        "image_hashes": tuple(columns["image_sha256"]),
    }


def check_claims(certificates: Certificates) -> None:
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


def _check_radii(radii: Floats, count: int, *, rising: bool) -> None:
    """Raises unless these are `count` radii: numbers that are not negative, or -inf where nothing is proved."""
    if radii.shape != (count,) or not np.all((radii >= 0) | np.isneginf(radii)):
        raise ValueError(f"expected {count} radii, none of them negative, not {radii.tolist()}")
    if rising and np.any(radii[1:] < radii[:-1]):
        raise ValueError("the radii are not in order")
