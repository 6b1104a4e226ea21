"""curves.csv and labels.csv, for people: every number is written so that it reads back as the number it is."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from multiguard.certify.arrays import Floats
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError
from multiguard.evaluate.curves import Curve
from multiguard.evaluate.scores import LabelScores
from multiguard.io.names import as_cell

_COLUMNS = (
    *("method", "k", "k_prime", "alpha", "n", "R", "averaging", "precision", "recall", "f1"),
    *("images", "without_labels", "failed", "noise", "attacker", "rule", "threshold", "mean_draws"),
    *("true_floor", "false_ceiling"),
)
_BAND_COLUMNS = ("level", *(f"{score}_{end}" for score in ("precision", "recall", "f1") for end in ("low", "high")))
_LABEL_COLUMNS = ("label", "R", "images", "certified", "failed", "noise", "attacker")


def curves_text(curves: Sequence[Curve]) -> str:
    """The content of curves.csv: no two curves may have the same method, config, noise and averaging."""
    keys = Counter((curve.method, curve.config, curve.noise, curve.averaging) for curve in curves)
    repeated = next((key for key, count in keys.items() if count > 1), None)
    if repeated is not None:
        raise InvalidInputError(f"two curves have the same method, config, noise and averaging: {repeated}; give one")
    banded = any(curve.bands is not None for curve in curves)
    columns = (*_COLUMNS, *_BAND_COLUMNS) if banded else _COLUMNS
    return _csv_text(columns, (row for curve in curves for row in _curve_rows(curve)), csv.QUOTE_MINIMAL)


def labels_text(labels: Sequence[LabelScores], noise: Noise) -> str:
    """The content of labels.csv; names that a spreadsheet would run as formulas get an apostrophe before them."""
    of = str(noise), noise.attacker
    rows = (
        dict(zip(_LABEL_COLUMNS, (as_cell(one.label), radius, one.images, certified, one.failed, *of), strict=True))
        for one in labels
        for radius, certified in zip(one.radius.tolist(), one.certified.tolist(), strict=True)
    )
    return _csv_text(_LABEL_COLUMNS, rows, csv.QUOTE_NONNUMERIC)


def curve_columns(curve: Curve) -> dict[str, Floats]:
    """The numbers of a curve at each radius, by the name of their column."""
    scores, bands = curve.scores, curve.bands
    columns = {"R": scores.radius, "precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
    columns |= {"true_floor": scores.true_floor, "false_ceiling": scores.false_ceiling}
    if bands is not None:
        ends = (*bands.precision, *bands.recall, *bands.f1)
        columns |= dict(zip(_BAND_COLUMNS[1:], ends, strict=True))
    return columns


def _curve_rows(curve: Curve) -> Iterable[dict[str, object]]:
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
    }
    if curve.bands is not None:
        same["level"] = curve.bands.level
    columns = curve_columns(curve)
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield {**same, **dict(zip(columns, values, strict=True))}


def _csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]], quoting: Literal[0, 2]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, quoting=quoting, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
