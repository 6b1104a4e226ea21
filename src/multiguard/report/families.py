"""Groups of curves that differ in one thing: the methods of a run, and one parameter swept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from multiguard.certify.arrays import Floats
from multiguard.certify.rules import RuleName
from multiguard.evaluate import Averaging, Curve
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.io.rounding import percent_value, plain, round_up
from multiguard.report.canvas import Stroke, distinct_strokes, ordered_strokes

if TYPE_CHECKING:
    from multiguard.report.study import Study

Score = Literal["precision", "recall", "f1", "false_ceiling"]
FamilyKey = Literal["methods", "k_prime", "k", "threshold", "n", "alpha", "noise", "training", "rules", "runs"]
METHOD_NAMES = {"joint": "joint", "betting": "betting", "paper": "paper (Theorem 1)", "independent": "independent"}
METHOD_NAMES |= {"coupled": "coupled", "enumerated": "enumerated", "jia": "Jia et al.", "cohen": "Cohen et al."}
POINTWISE = (
    "Each curve is valid pointwise, for a configuration fixed in advance; "
    "the best of several, picked after looking, is not covered by the probability 1 − α."
)
_CERTAIN = "Every band votes, so each curve holds for certain, and so does the best of several."
_LABELS_CHOSEN_AGAIN = "{} chose the labels again for each curve."
_HIGHEST_CEILING = 15.0


@dataclass(frozen=True)
class Measure:
    """One score of a curve: a fraction, which is a floor, or a number of labels, which is a ceiling."""

    key: Score  # its name in `Scores`
    word: str  # its name in tables
    title: str  # of its panel in a figure
    caption: str  # of its chart on the page

    @property
    def is_fraction(self) -> bool:
        """Whether it is a fraction, shown in percent; else a number of labels."""
        return self.key != "false_ceiling"

    @property
    def unit(self) -> str:
        """The unit of its axis."""
        return "%" if self.is_fraction else "labels per image"

    def values(self, curve: Curve) -> Floats:
        """(radii,) of the curve."""
        values: Floats = getattr(curve.scores, self.key)
        return values

    def band(self, curve: Curve) -> tuple[Floats, Floats] | None:
        """The low and high end, each (radii,); None without bands, and for all ceilings."""
        band: tuple[Floats, Floats] | None = getattr(curve.bands, self.key, None)
        return band

    def on_axis(self, values: Floats) -> Floats:
        """The values in the unit of the axis."""
        return 100 * values if self.is_fraction else values

    def text(self, value: float) -> str:
        """A value for people: a fraction rounded down, a ceiling rounded up."""
        return percent_value(value) if self.is_fraction else round_up(value, 2)


def rule_measures(rule: RuleName, *, labelled: bool) -> tuple[Measure, ...]:
    """The scores of a rule: without true labels no precision and no F1; a ceiling for the threshold rule."""
    prefix = "Certified top-k " if rule == "top-k" else "Certified "
    names: dict[Score, str] = {"precision": "precision", "recall": "recall", "f1": "F1"}
    floors = [Measure(key, word, f"{prefix}{word}@R", f"Certified {word}, %") for key, word in names.items()]
    if not labelled:
        floors = [Measure("recall", "stay", "Predicted labels certified to stay at R", "Predicted labels that stay, %")]
    if rule == "top-k":
        return tuple(floors)
    kind = "wrong labels" if labelled else "other labels"
    title = kind.capitalize()
    return (*floors, Measure("false_ceiling", f"{kind}, at most", f"{title}@R, at most", f"{title} returned, at most"))


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a family, in both averagings."""

    value: str  # what sets it apart, for a table cell
    name: str  # the same for a legend
    curves: Mapping[Averaging, Curve]
    is_base: bool  # whether it is the main run in its own config


@dataclass(frozen=True, eq=False)
class Family:
    """Curves that differ in one thing: one at least for the methods, two at least for all others."""

    key: FamilyKey  # its name in file names and column names
    symbol: str  # what the lines differ in, for a column heading
    title: str
    note: str  # caveats, one per line of text
    measures: tuple[Measure, ...]  # the scores to show
    lines: tuple[Line, ...]
    ordered: bool = False  # whether the lines are in the order of a number

    @property
    def base(self) -> Line:
        """The main run in its own config, or the first line where it is not among them."""
        return next((line for line in self.lines if line.is_base), self.lines[0])

    @property
    def radius(self) -> Floats:
        """(radii,), shared by all lines."""
        return self.lines[0].curves["mean"].scores.radius

    @property
    def strokes(self) -> list[Stroke]:
        """The stroke of each line, in order."""
        if not self.ordered:
            return distinct_strokes(len(self.lines))
        base = next((i for i, line in enumerate(self.lines) if line.is_base), 0)
        return ordered_strokes(len(self.lines), base)

    def top(self, measure: Measure) -> float | None:
        """Where the axis of a ceiling is cut off, since a high ceiling says next to nothing; None if it is not."""
        curves = [line.curves[averaging] for line in self.lines for averaging in AVERAGINGS]
        highest = max(float(measure.values(curve).max()) for curve in curves)
        return _HIGHEST_CEILING if not measure.is_fraction and highest > _HIGHEST_CEILING else None


def methods_family(study: "Study") -> Family:
    """Every method of the main run in its own config."""
    methods, lines = study.main.certificates.methods, []
    for method in methods:
        curves = {averaging: study.main_curve(method, averaging) for averaging in AVERAGINGS}
        lines.append(Line(method, METHOD_NAMES.get(method, method), curves, method == study.method))
    measures, note = rule_measures(study.rule, labelled=study.labelled), POINTWISE if len(methods) > 1 else ""
    return Family("methods", "method", "Methods on the same votes", note, measures, tuple(lines))


_SWEPT: Mapping[FamilyKey, tuple[str, str]] = {
    "k_prime": ("k′", "Labels returned by the base classifier, k′"),
    "k": ("k", "Labels returned by the smoothed classifier, k"),
    "threshold": ("t", "Threshold of the smoothed classifier, t"),
    "n": ("n", "Noise draws, n"),
    "alpha": ("α", "Error probability, α"),
}


def sweep_families(study: "Study") -> list[Family]:
    """One family per parameter: the curves whose config differs from the main one in nothing else."""
    return [_sweep(study, key) for key in _SWEPT if key in study.config.parameters]


def _sweep(study: "Study", key: FamilyKey) -> Family:
    base, (symbol, title) = study.config.parameters[key], _SWEPT[key]
    swept: dict[float, dict[Averaging, Curve]] = {}
    for curve in study.main.curves:
        value = curve.config.parameters.get(key)
        if value is not None and curve.method == study.method and curve.config.vary(key, base) == study.config:
            swept.setdefault(value, {})[curve.averaging] = curve
    lines = tuple(
        Line(plain(value), f"{symbol} = {plain(value)}", both, value == base) for value, both in sorted(swept.items())
    )
    bands = study.main.certificates.noise.enumerated
    note = _CERTAIN if bands else POINTWISE
    if not study.labelled and key not in ("n", "alpha"):
        note = f"{_LABELS_CHOSEN_AGAIN.format('The bands' if bands else 'Pilot draws')}\n{note}"
    return Family(key, symbol, title, note, rule_measures(study.rule, labelled=study.labelled), lines, ordered=True)
