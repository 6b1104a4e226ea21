"""Curves that belong in one image, since they differ in one thing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from multiguard.certify.arrays import Floats
from multiguard.evaluate import Averaging, Curve
from multiguard.report.measure import Measure
from multiguard.report.strokes import Stroke, strokes_apart, strokes_in_order

FamilyKey = Literal["methods", "k_prime", "k", "threshold", "n", "alpha", "sigma", "training", "rules", "runs"]
AVERAGINGS: tuple[Averaging, ...] = ("mean", "pooled")
POINT_BY_POINT = (
    "Each curve is valid point by point, for the setting it was asked in beforehand; "
    "the best of them, picked after looking, is not covered by the probability 1 − α."
)
_MOST_LABELS = 15.0
METHOD_NAMES = {
    "joint": "joint",
    "paper": "paper (Theorem 1)",
    "independent": "independent",
    "jia": "Jia et al.",
    "cohen": "Cohen et al.",
}


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a family, in both averagings.

    Attributes:
        value: What sets it apart, as a table's cell.
        name: The same as a legend's entry.
        curves: The curve in each averaging.
        is_base: Whether it is the main run in its own setting.
    """

    value: str
    name: str
    curves: Mapping[Averaging, Curve]
    is_base: bool

    @property
    def failed(self) -> int:
        """How many images of its run could not be voted on."""
        return self.curves["mean"].failed


@dataclass(frozen=True, eq=False)
class Family:
    """Lines that differ in one thing.

    Attributes:
        key: Its name in file names and column heads.
        symbol: What the lines differ in, as a table's column head.
        title: Its heading.
        note: What to know when reading it, a line for each thing.
        measures: What its lines are shown in.
        lines: At least one for the methods, at least two for all others.
        ordered: Whether the lines stand in the order of a number.
    """

    key: FamilyKey
    symbol: str
    title: str
    note: str
    measures: tuple[Measure, ...]
    lines: tuple[Line, ...]
    ordered: bool

    @property
    def base(self) -> Line:
        """The main run in its own setting, or the first line where it has none here."""
        return next((line for line in self.lines if line.is_base), self.lines[0])

    @property
    def radius(self) -> Floats:
        """The radii that all of its lines are asked at."""
        return self.lines[0].curves["mean"].scores.radius

    def top(self, measure: Measure) -> float | None:
        """Where the axis of a ceiling ends although a line goes on: far up, a ceiling says next to nothing."""
        curves = [line.curves[averaging] for line in self.lines for averaging in AVERAGINGS]
        highest = max(float(measure.values(curve).max()) for curve in curves)
        return _MOST_LABELS if not measure.is_share and highest > _MOST_LABELS else None

    @property
    def strokes(self) -> list[Stroke]:
        """How each line is drawn, in order."""
        if not self.ordered:
            return strokes_apart(len(self.lines))
        base = next((i for i, line in enumerate(self.lines) if line.is_base), 0)
        return strokes_in_order(len(self.lines), base)
