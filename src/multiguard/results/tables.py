"""curves.csv and labels.csv: every number as written is the number that was computed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from multiguard.certify import Threshold, TopK
from multiguard.certify.arguments import check_alpha, check_fraction
from multiguard.certify.arrays import Floats
from multiguard.certify.rules import check_method
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate.bootstrap import Bands
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.curves import AVERAGINGS, Curve
from multiguard.evaluate.scores import Averaging, LabelScores, Scores, check_radius
from multiguard.io.files import write_atomically
from multiguard.io.names import as_cell, from_cell

_SCORES = ("precision", "recall", "f1")
_COUNTS = ("true_floor", "false_ceiling")
_CURVE = (
    *("method", "k", "k_prime", "alpha", "n", "averaging", "images", "without_labels", "failed", "sigma"),
    *("rule", "threshold", "mean_draws"),
)
_BAND_ENDS = tuple(f"{score}_{end}" for score in _SCORES for end in ("low", "high"))
CURVE_COLUMNS = (
    "method",
    "k",
    "k_prime",
    "alpha",
    "n",
    "R",
    "averaging",
    *_SCORES,
    "images",
    "without_labels",
    "failed",
    "sigma",
    "rule",
    "threshold",
    "mean_draws",
    *_COUNTS,
)
BAND_COLUMNS = ("level", *_BAND_ENDS, "resamples", "seed")
LABEL_COLUMNS = ("label", "R", "images", "certified", "failed")

Row = Mapping[str, str]
T = TypeVar("T")


def write_curves(path: str | Path, curves: Sequence[Curve]) -> None:
    """Write curves so that `read_curves` gives back the very same numbers; the file is there whole or not at all.

    Args:
        path: The CSV file; replaced if it is there.
        curves: No two of the same method, setting, sigma and averaging.
    """
    keys = [(curve.method, curve.config, curve.sigma, curve.averaging) for curve in curves]
    repeated = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
    if repeated is not None:
        raise InvalidInputError(f"two curves are of the same method, setting, sigma and averaging: {repeated}")
    banded = any(curve.bands is not None for curve in curves)
    columns = (*CURVE_COLUMNS, *BAND_COLUMNS) if banded else CURVE_COLUMNS
    _write(Path(path), columns, (row for curve in curves for row in _curve_rows(curve)), csv.QUOTE_MINIMAL)


def read_curves(path: str | Path) -> list[Curve]:
    """The curves of a file that `write_curves` wrote, number for number."""
    try:
        return parse_curves(Path(path).read_bytes(), Path(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def parse_curves(content: bytes, path: Path) -> list[Curve]:
    """The curves in the content of this file, or a `DataError` that names it."""
    rows = _rows(content, path, CURVE_COLUMNS, BAND_COLUMNS)
    runs = [list(run) for _, run in groupby(rows, key=lambda row: [row[name] for name in _CURVE])]
    return [_parsed(path, _curve, run) for run in runs]


def write_labels(path: str | Path, labels: Sequence[LabelScores]) -> None:
    """Write per-label results so that `parse_labels` gives back the very same names and numbers.

    A name that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    rows = (
        {
            "label": as_cell(one.label),
            "R": radius,
            "images": one.images,
            "certified": certified,
            "failed": one.failed,
        }
        for one in labels
        for radius, certified in zip(one.radius.tolist(), one.certified.tolist(), strict=True)
    )
    _write(Path(path), LABEL_COLUMNS, rows, csv.QUOTE_NONNUMERIC)


def parse_labels(content: bytes, path: Path) -> list[LabelScores]:
    """The per-label results in the content of this file, or a `DataError` that names it."""
    runs = [list(run) for _, run in groupby(_rows(content, path, LABEL_COLUMNS), key=lambda row: row["label"])]
    return [_parsed(path, _label, run) for run in runs]


def _curve_rows(curve: Curve) -> Iterable[dict[str, object]]:
    scores, bands = curve.scores, curve.bands
    same: dict[str, object] = {
        "method": curve.method,
        **_config_cells(curve.config),
        "averaging": curve.averaging,
        "images": scores.images,
        "without_labels": scores.without_labels,
        "failed": curve.failed,
        "sigma": curve.sigma,
        "mean_draws": curve.mean_draws,
    }
    columns = {"R": scores.radius, **{name: getattr(scores, name) for name in (*_SCORES, *_COUNTS)}}
    if bands is not None:
        same |= {"level": bands.level, "resamples": bands.resamples, "seed": bands.seed}
        ends = [end for name in _SCORES for end in getattr(bands, name)]
        columns |= dict(zip(_BAND_ENDS, ends, strict=True))
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield {**same, **dict(zip(columns, values, strict=True))}


def _curve(rows: Sequence[Row]) -> Curve:
    first = rows[0]
    precision, recall, f1 = (_share(rows, name) for name in _SCORES)
    floor, ceiling = (_column(rows, name) for name in _COUNTS)
    images, without = _count(first["images"]), _count(first["without_labels"])
    scores = Scores(_radius(rows), precision, recall, f1, floor, ceiling, images, without)
    sigma, mean_draws = (float(_column(rows[:1], name)[0]) for name in ("sigma", "mean_draws"))
    averaging, failed = _averaging(first["averaging"]), _count(first["failed"])
    config = _config(first)
    method = check_method(first["method"], config.rule)
    return Curve(method, config, sigma, averaging, scores, mean_draws, failed, _bands(rows))


def _config_cells(config: CertifyConfig) -> dict[str, object]:
    """The cells of the config; those of the other rule are empty."""
    own = {"k": "", "k_prime": "", "threshold": "", **config.rule.options}
    return {**own, "rule": config.rule.name, "alpha": config.alpha, "n": config.draws}


def _config(row: Row) -> CertifyConfig:
    alpha, n = check_alpha(float(row["alpha"])), _count(row["n"])
    if row["rule"] == "top-k" and not row["threshold"]:
        return CertifyConfig(TopK(_count(row["k"]), _count(row["k_prime"])), alpha, n)
    if row["rule"] == "threshold" and not (row["k"] or row["k_prime"]):
        return CertifyConfig(Threshold(float(row["threshold"])), alpha, n)
    raise ValueError(f"a row of rule {row['rule']!r} with k {row['k']!r} and threshold {row['threshold']!r}")


def _bands(rows: Sequence[Row]) -> Bands | None:
    first = rows[0]
    if not first.get("level"):
        return None
    precision, recall, f1 = ((_share(rows, f"{name}_low"), _share(rows, f"{name}_high")) for name in _SCORES)
    level = check_fraction("level", float(first["level"]))
    return Bands(level, _count(first["resamples"]), _count(first["seed"]), precision, recall, f1)


def _label(rows: Sequence[Row]) -> LabelScores:
    name, failed = from_cell(rows[0]["label"]), _count(rows[0]["failed"])
    return LabelScores(name, _count(rows[0]["images"]), _radius(rows), _share(rows, "certified"), failed)


def _radius(rows: Sequence[Row]) -> Floats:
    return check_radius(_column(rows, "R"))


def _averaging(text: str) -> Averaging:
    for averaging in AVERAGINGS:
        if text == averaging:
            return averaging
    raise ValueError(f"unknown averaging {text!r}")


def _column(rows: Sequence[Row], name: str) -> Floats:
    """The numbers of a column; a score, a count or a radius is finite and not negative."""
    values = np.array([float(row[name]) for row in rows])
    if not np.all((values >= 0) & np.isfinite(values)):
        raise ValueError(f"{name} holds {values[~((values >= 0) & np.isfinite(values))][0]}")
    return values


def _share(rows: Sequence[Row], name: str) -> Floats:
    values = _column(rows, name)
    if np.any(values > 1):
        raise ValueError(f"{name} holds {values.max()}, which is no share")
    return values


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(f"{text} counts nothing")
    return number


def _write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]], quoting: Literal[0, 2]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, quoting=quoting, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def _rows(content: bytes, path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Sequence[Row]:
    """The rows of a CSV file that has these columns; each row has a cell in every one."""
    try:
        reader = csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}") from error
    header = tuple(reader.fieldnames or ())
    if header not in (tuple(columns), (*columns, *optional)):
        raise DataError(f"{path} must have the columns {','.join(columns)}; it has {','.join(header) or 'none'}")
    if any(None in row or None in row.values() for row in rows):
        raise DataError(f"{path} is damaged: a row has not as many cells as the header")
    return rows


def _parsed(path: Path, parse: Callable[[Sequence[Row]], T], rows: Sequence[Row]) -> T:
    try:
        return parse(rows)
    except (KeyError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
