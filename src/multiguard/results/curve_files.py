"""curves.csv and labels.csv: every number is written so that it reads back as the number that was computed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from multiguard.certify import make_rule
from multiguard.certify.arguments import check_alpha, check_fraction
from multiguard.certify.arrays import Floats
from multiguard.certify.rules import check_method
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Averaging, Bands, CertifyConfig, Curve, LabelScores, Scores
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.evaluate.scores import check_radius
from multiguard.io.files import write_atomically
from multiguard.io.names import as_cell

_SCORES = ("precision", "recall", "f1")
_COUNTS = ("true_floor", "false_ceiling")
_BAND_ENDS = tuple(f"{score}_{end}" for score in _SCORES for end in ("low", "high"))
_COLUMNS = (
    *("method", "k", "k_prime", "alpha", "n", "R", "averaging", *_SCORES, "images", "without_labels", "failed"),
    *("sigma", "rule", "threshold", "mean_draws", *_COUNTS),
)
_BAND_COLUMNS = ("level", *_BAND_ENDS, "resamples", "seed")
# The columns that all rows of one curve share.
_CURVE = tuple(name for name in _COLUMNS if name not in ("R", *_SCORES, *_COUNTS))
_LABEL_COLUMNS = ("label", "R", "images", "certified", "failed")

Row = Mapping[str, str]


def config_record(config: CertifyConfig) -> dict[str, Any]:
    """A config, whose n is a number, as files hold it: flat, with the options of its own rule only."""
    return {"rule": config.rule.name, **config.rule.options, "alpha": config.alpha, "n": config.draws}


def config_from_record(record: Mapping[str, Any]) -> CertifyConfig:
    """The config of a record; raises `InvalidInputError` unless exactly its parameters are there."""
    options = {name: value for name, value in record.items() if name not in ("rule", "alpha", "n")}
    unknown = options.keys() - {"k", "k_prime", "threshold"}
    if unknown or not {"rule", "alpha", "n"} <= record.keys():
        raise InvalidInputError(f"a config has a rule, its options, alpha and n, not {', '.join(map(str, record))}")
    return CertifyConfig(make_rule(record["rule"], **options), check_alpha(record["alpha"]), _count(record["n"]))


def write_curves(path: str | Path, curves: Sequence[Curve]) -> None:
    """Write curves so that `read_curves` returns exactly the same numbers; the file is complete or not there.

    Args:
        path: The CSV file; replaced if it exists.
        curves: No two of the same method, config, sigma and averaging.

    >>> import tempfile
    >>> from multiguard.certify import TopK
    >>> radius, score = np.array([0.0, 0.5]), np.array([1 / 3, 0.1])
    >>> scores = Scores(radius, score, score, score, 2 * score, score, images=3, without_labels=0)
    >>> curve = Curve("joint", CertifyConfig(TopK(2, 1), n=100), 0.5, "mean", scores, mean_draws=100.0, failed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_curves(f"{folder}/curves.csv", [curve])
    ...     print(read_curves(f"{folder}/curves.csv")[0].scores.recall)
    [0.33333333 0.1       ]
    """
    _write(Path(path), curves_text(curves))


def read_curves(path: str | Path) -> list[Curve]:
    """The curves of a file that `write_curves` wrote, number for number; a damaged file raises `DataError`.

    Args:
        path: The CSV file; for an example see `write_curves`.
    """
    try:
        return parse_curves(Path(path).read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} cannot be read, certify the votes again: {error}") from error


def curves_text(curves: Sequence[Curve]) -> str:
    """The content of curves.csv."""
    keys = [(curve.method, curve.config, curve.sigma, curve.averaging) for curve in curves]
    repeated = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
    if repeated is not None:
        raise InvalidInputError(f"two curves have the same method, config, sigma and averaging: {repeated}; give one")
    banded = any(curve.bands is not None for curve in curves)
    columns = (*_COLUMNS, *_BAND_COLUMNS) if banded else _COLUMNS
    return _csv_text(columns, (row for curve in curves for row in _curve_rows(curve)), csv.QUOTE_MINIMAL)


def parse_curves(content: bytes) -> list[Curve]:
    """The curves in the content of curves.csv; anything else raises `ValueError`."""
    try:
        reader = csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True)
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error
    header = tuple(reader.fieldnames or ())
    if header not in (_COLUMNS, (*_COLUMNS, *_BAND_COLUMNS)):
        raise ValueError(f"the columns must be {','.join(_COLUMNS)}, not {','.join(header) or 'none'}")
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("a row has more or fewer cells than the header")
    return [_curve(list(run)) for _, run in groupby(rows, key=lambda row: [row[name] for name in _CURVE])]


def write_labels(path: Path, labels: Sequence[LabelScores]) -> None:
    """Write the results of each label; names that a spreadsheet would run as formulas get an apostrophe before them."""
    rows = (
        dict(zip(_LABEL_COLUMNS, (as_cell(one.label), radius, one.images, certified, one.failed), strict=True))
        for one in labels
        for radius, certified in zip(one.radius.tolist(), one.certified.tolist(), strict=True)
    )
    _write(path, _csv_text(_LABEL_COLUMNS, rows, csv.QUOTE_NONNUMERIC))


def _curve_rows(curve: Curve) -> Iterable[dict[str, object]]:
    scores, bands = curve.scores, curve.bands
    same: dict[str, object] = {
        "method": curve.method,
        **config_record(curve.config),
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
    first, config = rows[0], _config(rows[0])
    precision, recall, f1 = (_column(rows, name, most=1.0) for name in _SCORES)
    floor, ceiling = (_column(rows, name) for name in _COUNTS)
    radius, images, without = check_radius(_column(rows, "R")), _count(first["images"]), _count(first["without_labels"])
    scores = Scores(radius, precision, recall, f1, floor, ceiling, images, without)
    sigma, mean_draws = (float(_column(rows[:1], name)[0]) for name in ("sigma", "mean_draws"))
    method, averaging = check_method(first["method"], config.rule), _averaging(first["averaging"])
    return Curve(method, config, sigma, averaging, scores, mean_draws, _count(first["failed"]), _bands(rows))


def _config(row: Row) -> CertifyConfig:
    numbers: dict[str, Callable[[str], float]] = {
        "k": _count,
        "k_prime": _count,
        "threshold": float,
        "alpha": float,
        "n": _count,
    }
    given = {name: number(row[name]) for name, number in numbers.items() if row[name]}
    return config_from_record({"rule": row["rule"], **given})


def _bands(rows: Sequence[Row]) -> Bands | None:
    first = rows[0]
    if not first.get("level"):
        return None
    low, high = ([_column(rows, f"{name}_{end}", most=1.0) for name in _SCORES] for end in ("low", "high"))
    precision, recall, f1 = zip(low, high, strict=True)
    level = check_fraction("level", float(first["level"]))
    return Bands(level, _count(first["resamples"]), _count(first["seed"]), precision, recall, f1)


def _averaging(text: str) -> Averaging:
    for averaging in AVERAGINGS:
        if text == averaging:
            return averaging
    raise ValueError(f"averaging must be one of {', '.join(AVERAGINGS)}, not {text!r}")


def _column(rows: Sequence[Row], name: str, most: float = np.finfo(np.float64).max) -> Floats:
    """The numbers of a column: scores, counts and radii, which are finite and not negative."""
    values = np.array([float(row[name]) for row in rows])
    inside = (values >= 0) & (values <= most)
    if not inside.all():
        raise ValueError(f"{name} must lie between 0 and {most:.4g}, not {values[~inside][0]}")
    return values


def _count(value: str | int) -> int:
    number = int(value)
    if isinstance(value, bool | float) or not 0 <= number < 2**63:
        raise ValueError(f"a count must be an integer between 0 and 2^63, not {value}")
    return number


def _csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]], quoting: Literal[0, 2]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, quoting=quoting, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))
