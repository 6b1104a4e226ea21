"""certificates.parquet: one row a picture, with names in place of label indices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.certify import Method
from multiguard.errors import DataError
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.setting import Setting
from multiguard.files import write_atomically


def write_rows(path: Path, certificates: Certificates) -> None:
    """Write a row for each picture; the file is there whole or not at all."""
    table = pa.Table.from_pylist(
        [_row(certificates, i) for i in range(len(certificates.ids))], schema=_schema(certificates.methods)
    )
    write_atomically(path, lambda file: pq.write_table(table, file, compression="zstd"))


def parse_rows(
    content: bytes,
    path: Path,
    *,
    setting: Setting,
    sigma: float,
    label_names: tuple[str, ...],
    methods: Sequence[Method],
) -> Certificates:
    """The certificates whose rows are in the content of this file, or a `DataError` that names it."""
    try:
        rows = pq.read_table(pa.BufferReader(content)).cast(_schema(methods)).to_pylist()
        return _certificates(rows, setting, sigma, label_names, methods)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged or not of these certificates: {error}") from error


def _schema(methods: Sequence[Method]) -> pa.Schema:
    numbers, names = pa.list_(pa.float64()), pa.list_(pa.string())
    return pa.schema(
        [
            ("id", pa.string()),
            ("labels", names),
            ("radii", pa.struct([(method, numbers) for method in methods])),
            ("label_radii", numbers),
            ("predicted", names),
            ("predicted_hits", pa.list_(pa.int64())),
        ]
    )


def _row(certificates: Certificates, index: int) -> dict[str, Any]:
    names = certificates.label_names
    return {
        "id": certificates.ids[index],
        "labels": [names[label] for label in certificates.labels[index]],
        "radii": {method: radii[index].tolist() for method, radii in certificates.radii.items()},
        "label_radii": certificates.label_radii[index].tolist(),
        "predicted": [names[label] for label in certificates.predicted[index]],
        "predicted_hits": certificates.predicted_hits[index],
    }


def _certificates(
    rows: Sequence[Mapping[str, Any]],
    setting: Setting,
    sigma: float,
    label_names: tuple[str, ...],
    methods: Sequence[Method],
) -> Certificates:
    index = {name: label for label, name in enumerate(label_names)}
    return Certificates(
        setting=setting,
        sigma=sigma,
        label_names=label_names,
        ids=tuple(row["id"] for row in rows),
        labels=tuple(tuple(index[name] for name in row["labels"]) for row in rows),
        radii={method: tuple(np.array(row["radii"][method], np.float64) for row in rows) for method in methods},
        label_radii=tuple(np.array(row["label_radii"], np.float64) for row in rows),
        predicted=tuple(tuple(index[name] for name in row["predicted"]) for row in rows),
        predicted_hits=tuple(tuple(row["predicted_hits"]) for row in rows),
    )
