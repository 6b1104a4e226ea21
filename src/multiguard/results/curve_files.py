"""curves.csv and labels.csv: every number is written so that it reads back as the number that was computed."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Literal

import numpy as np

from multiguard.certify.arguments import check_fraction
from multiguard.certify.arrays import Floats
from multiguard.certify.noise import Noise, parse_noise
from multiguard.certify.rules import check_method
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Bands, Certificates, CertifyConfig, Curve, LabelScores, Scores
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.evaluate.scores import check_radius
from multiguard.io.files import read_regular, write_atomically
from multiguard.io.names import as_cell
from multiguard.results.table_file import config_record, parse_config, parse_count

_SCORES = ("precision", "recall", "f1")
_COUNTS = ("true_floor", "false_ceiling")
_BAND_ENDS = tuple(f"{score}_{end}" for score in _SCORES for end in ("low", "high"))
_COLUMNS = (
    *("method", "k", "k_prime", "alpha", "n", "R", "averaging", *_SCORES, "images", "without_labels", "failed"),
    *("noise", "attacker", "rule", "threshold", "mean_draws", *_COUNTS),
)
_BAND_COLUMNS = ("level", *_BAND_ENDS)
# The columns that all rows of one curve share.
_CURVE = tuple(name for name in _COLUMNS if name not in ("R", *_SCORES, *_COUNTS))
_LABEL_COLUMNS = ("label", "R", "images", "certified", "failed", "noise", "attacker")

Row = Mapping[str, str]


def write_curves(path: str | Path, curves: Sequence[Curve]) -> None:
    """Write curves so that `read_curves` returns exactly the same numbers; the file is complete or not there.

    Args:
        path: The CSV file; replaced if it exists.
        curves: No two of the same method, config, noise and averaging.

    >>> from multiguard.certify import TopK
    >>> from multiguard.certify.noise import Gaussian
    >>> radius, score = np.array([0.0, 0.5]), np.array([1 / 3, 0.1])
    >>> scores = Scores(radius, score, score, score, 2 * score, score, images=3, without_labels=0)
    >>> config, noise = CertifyConfig(TopK(2, 1), n=100), Gaussian(0.5)
    >>> curve = Curve("joint", config, noise, "mean", scores, mean_draws=100.0, failed=0)
    >>> write_curves(out / "curves.csv", [curve])
    >>> read_curves(out / "curves.csv")[0].scores.recall
    array([0.33333333, 0.1       ])
    """
    write_atomically(Path(path), lambda file: file.write(curves_text(curves).encode()))


def read_curves(path: str | Path) -> list[Curve]:
    """The curves of a CSV file that `write_curves` wrote, number for number; a damaged file raises `DataError`."""
    try:
        return parse_curves(read_regular(Path(path)))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} cannot be read, certify the votes again: {error}") from error


def curves_text(curves: Sequence[Curve]) -> str:
    """The content of curves.csv."""
    keys = Counter((curve.method, curve.config, curve.noise, curve.averaging) for curve in curves)
    repeated = next((key for key, count in keys.items() if count > 1), None)
    if repeated is not None:
        raise InvalidInputError(f"two curves have the same method, config, noise and averaging: {repeated}; give one")
    banded = any(curve.bands is not None for curve in curves)
    columns = (*_COLUMNS, *_BAND_COLUMNS) if banded else _COLUMNS
    return _csv_text(columns, (row for curve in curves for row in _curve_rows(curve)), csv.QUOTE_MINIMAL)


def parse_curves(content: bytes) -> list[Curve]:
    """The curves in the content of curves.csv; anything else raises `ValueError`."""
    reader = csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error
    header = tuple(reader.fieldnames or ())
    if header not in (_COLUMNS, (*_COLUMNS, *_BAND_COLUMNS)):
        raise ValueError(f"the columns must be {','.join(_COLUMNS)}, not {','.join(header) or 'none'}")
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("a row has more or fewer cells than the header")
    return [_curve(list(run)) for _, run in groupby(rows, key=lambda row: [row[name] for name in _CURVE])]


def check_curves(certificates: Certificates, curves: Sequence[Curve]) -> None:
    """Raises unless the curves can be those of the certificates and their sweeps."""
    for curve in curves:
        _check_curve(certificates, curve)
    present = {(curve.method, curve.averaging) for curve in curves if curve.config == certificates.config}
    for method, averaging in product(certificates.methods, AVERAGINGS):
        if (method, averaging) not in present:
            raise InvalidInputError(
                f"the curve of the method {method} ({averaging}) in the config of the certificates is missing; give "
                "all that curves() makes of them"
            )


def _check_curve(certificates: Certificates, curve: Curve) -> None:
    images, without = curve.scores.images, curve.scores.without_labels
    labelled = int(np.count_nonzero(certificates.labels.lengths))
    swept = curve.config != certificates.config  # pilot draws may then have chosen labels of other images
    pairs = {
        "the rule": (curve.config.rule.name, certificates.rule_name),
        "the noise": (curve.noise, certificates.noise),
        "the number of failed images": (curve.failed, len(certificates.failures)),
        "the number of images": (images + without, len(certificates.ids)),
        "the number of images with labels": (images, images if swept else labelled),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise InvalidInputError(
                f"a curve is not of these certificates: {name} is {ours}, in the certificates {theirs}; make the "
                "curves of these certificates"
            )


def write_labels(path: Path, labels: Sequence[LabelScores], noise: Noise) -> None:
    """Write the results of each label; names that a spreadsheet would run as formulas get an apostrophe before them."""
    of = str(noise), noise.attacker
    rows = (
        dict(zip(_LABEL_COLUMNS, (as_cell(one.label), radius, one.images, certified, one.failed, *of), strict=True))
        for one in labels
        for radius, certified in zip(one.radius.tolist(), one.certified.tolist(), strict=True)
    )
    text = _csv_text(_LABEL_COLUMNS, rows, csv.QUOTE_NONNUMERIC)
    write_atomically(path, lambda file: file.write(text.encode()))


def _curve_rows(curve: Curve) -> Iterable[dict[str, object]]:
    scores, bands = curve.scores, curve.bands
    same = {name: getattr(curve, name) for name in ("method", "averaging", "failed", "noise", "mean_draws")}
    same |= {
        "attacker": curve.noise.attacker,
        **config_record(curve.config),
        "images": scores.images,
        "without_labels": scores.without_labels,
    }
    columns = {"R": scores.radius, **{name: getattr(scores, name) for name in (*_SCORES, *_COUNTS)}}
    if bands is not None:
        same["level"] = bands.level
        columns |= zip(_BAND_ENDS, (end for name in _SCORES for end in getattr(bands, name)), strict=True)
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield {**same, **dict(zip(columns, values, strict=True))}


def _curve(rows: Sequence[Row]) -> Curve:
    first, config, noise = rows[0], _config(rows[0]), _noise(rows[0])
    radius = check_radius(_column(rows, "R"), noise)
    scores = {name: _column(rows, name, most=1.0) for name in _SCORES} | {name: _column(rows, name) for name in _COUNTS}
    images, without_labels, failed = (parse_count(first[name]) for name in ("images", "without_labels", "failed"))
    mean_draws = float(_column(rows[:1], "mean_draws")[0])
    averaging = next((name for name in AVERAGINGS if name == first["averaging"]), None)
    if averaging is None:
        raise ValueError(f"averaging must be one of {', '.join(AVERAGINGS)}, not {first['averaging']!r}")
    averages = Scores(radius, **scores, images=images, without_labels=without_labels)
    method = check_method(first["method"], config.rule, noise)
    return Curve(method, config, noise, averaging, averages, mean_draws, failed, _bands(rows))


def _noise(row: Row) -> Noise:
    noise = parse_noise(row["noise"])
    if row["attacker"] != noise.attacker:
        raise ValueError(f"the attacker of the noise {noise} is {noise.attacker!r}, not {row['attacker']!r}")
    return noise


def _config(row: Row) -> CertifyConfig:
    counts = {name: parse_count(row[name]) for name in ("k", "k_prime", "n") if row[name]}
    fractions = {name: float(row[name]) for name in ("threshold", "alpha") if row[name]}
    return parse_config({"rule": row["rule"], **counts, **fractions})


def _bands(rows: Sequence[Row]) -> Bands | None:
    first = rows[0]
    if not first.get("level"):
        return None
    low, high = ([_column(rows, f"{name}_{end}", most=1.0) for name in _SCORES] for end in ("low", "high"))
    precision, recall, f1 = zip(low, high, strict=True)
    level = check_fraction("level", float(first["level"]))
    return Bands(level, precision, recall, f1)


def _column(rows: Sequence[Row], name: str, most: float = np.finfo(np.float64).max) -> Floats:
    """The numbers of a column: scores, counts and radii, which are finite and not negative."""
    values = np.array([float(row[name]) for row in rows])
    inside = (values >= 0) & (values <= most)
    if not inside.all():
        raise ValueError(f"{name} must lie between 0 and {most:.4g}, not {values[~inside][0]}")
    return values


def _csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]], quoting: Literal[0, 2]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, quoting=quoting, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
