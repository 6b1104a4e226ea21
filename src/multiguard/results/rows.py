"""certificates.parquet: one row an image, with names in place of label indices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.errors import DataError
from multiguard.evaluate.certificates import Certificates
from multiguard.io.files import open_parquet, write_atomically
from multiguard.results.claims import check_claims
from multiguard.results.described import Description
from multiguard.votes import Rule


def write_rows(path: Path, certificates: Certificates) -> None:
    """Write a row for each image; the file is there whole or not at all."""
    rows = [_row(certificates, i) for i in range(len(certificates.ids))]
    table = pa.Table.from_pylist(rows, schema=_schema(certificates.methods, certificates.rule_name))
    write_atomically(path, lambda file: pq.write_table(table, file, compression="zstd"))


def parse_rows(
    content: bytes,
    path: Path,
    said: Description,
) -> Certificates:
    """The certificates whose rows are in the content of this file, or a `DataError` that names it.

    Args:
        content: The file, read whole.
        path: Where it lies, for messages.
        said: What the description beside it says of all images.
    """
    index = {name: label for label, name in enumerate(said.label_names)}
    try:
        rows = open_parquet(content).read().cast(_schema(said.methods, said.rule)).to_pylist()
        found = Certificates(
            config=said.config,
            sigma=said.sigma,
            label_names=said.label_names,
            labelled=said.labelled,
            failures=said.failures,
            **_columns(rows, index, said.methods, said.rule),
        )
        check_claims(found)
    except Exception as error:  # a damaged file makes its reader fail in any way there is
        raise DataError(f"{path} is damaged or not of these certificates: {error}") from error
    return found


def _schema(methods: Sequence[Method], rule: Rule) -> pa.Schema:
    numbers, names = pa.list_(pa.float64()), pa.list_(pa.string())
    by_method = pa.struct([(method, numbers) for method in methods])
    return pa.schema(
        [
            ("id", pa.string()),
            ("labels", names),
            ("radii", by_method),
            *([("false_radii", by_method)] if rule == "threshold" else []),
            ("label_radii", numbers),
            ("predicted", names),
            ("predicted_hits", pa.list_(pa.int64())),
            ("draws", pa.int64()),
            ("image_sha256", pa.string()),
        ]
    )


def _row(certificates: Certificates, index: int) -> dict[str, Any]:
    names = certificates.label_names
    return {
        "id": certificates.ids[index],
        "labels": [names[label] for label in certificates.labels[index]],
        "radii": _by_method(certificates.radii, index),
        "false_radii": _by_method(certificates.false_radii or {}, index),
        "label_radii": certificates.label_radii[index].tolist(),
        "predicted": [names[label] for label in certificates.predicted[index]],
        "predicted_hits": certificates.predicted_hits[index],
        "draws": certificates.draws[index],
        "image_sha256": certificates.image_hashes[index],
    }


def _by_method(radii: Mapping[Method, Sequence[Floats]], index: int) -> dict[Method, list[float]]:
    return {method: each[index].tolist() for method, each in radii.items()}


def _columns(
    rows: Sequence[Mapping[str, Any]], index: Mapping[str, int], methods: Sequence[Method], rule: Rule
) -> dict[str, Any]:
    def radii(column: str) -> dict[Method, tuple[Floats, ...]]:
        return {method: tuple(np.array(row[column][method], np.float64) for row in rows) for method in methods}

    return {
        "ids": tuple(row["id"] for row in rows),
        "labels": tuple(tuple(index[name] for name in row["labels"]) for row in rows),
        "radii": radii("radii"),
        "false_radii": radii("false_radii") if rule == "threshold" else None,
        "label_radii": tuple(np.array(row["label_radii"], np.float64) for row in rows),
        "predicted": tuple(tuple(index[name] for name in row["predicted"]) for row in rows),
        "predicted_hits": tuple(tuple(row["predicted_hits"]) for row in rows),
        "draws": tuple(row["draws"] for row in rows),
        "image_hashes": tuple(row["image_sha256"] for row in rows),
    }
