"""Groups of curves that differ in one thing: the methods of a run, a parameter swept, or runs beside it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.certify.noise import NO_NOISE, parse_noise
from multiguard.certify.rules import RuleName
from multiguard.evaluate import Averaging, Curve, Results, curves
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.io.rounding import percent_value, plain, round_up
from multiguard.report.canvas import Stroke, distinct_strokes, ordered_strokes
from multiguard.report.words import config_words, failure_words

if TYPE_CHECKING:
    from multiguard.report.study import Study

Score = Literal["precision", "recall", "f1", "false_ceiling"]
FamilyKey = Literal["methods", "k_prime", "k", "threshold", "n", "alpha", "noise", "training", "rules", "runs"]
METHOD_NAMES = {"joint": "joint", "betting": "betting", "paper": "paper (Theorem 1)", "independent": "independent"}
METHOD_NAMES |= {"coupled": "coupled", "enumerated": "enumerated", "jia": "Jia et al."}
POINTWISE = (
    "Each curve is valid pointwise, for a configuration fixed in advance; "
    "the best of several, picked after looking, is not covered by the probability 1 − α."
)
_CERTAIN = "Every band votes, so each curve holds for certain, and so does the best of several."
_LABELS_CHOSEN_AGAIN = "{} chose the labels again for each curve."
_HIGHEST_CEILING = 15.0
Runs = Mapping[str, Results]
Words = Mapping[str, str]
THIS_RUN = "this run"
_TWO_RULES = "The top-k rule always returns k labels; the threshold rule returns every label that reaches t."
_OWN_LABELS = "Each run certifies the labels that it predicts itself."


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
    def recall_first(self) -> list[Measure]:
        """Its scores, the one of the headline first."""
        return sorted(self.measures, key=lambda measure: measure.key != "recall")

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
        both = [line.curves[averaging] for line in self.lines for averaging in AVERAGINGS]
        highest = max(float(measure.values(curve).max()) for curve in both)
        return _HIGHEST_CEILING if not measure.is_fraction and highest > _HIGHEST_CEILING else None


def methods_family(study: "Study") -> Family:
    """Every method of the main run in its own config."""
    methods, lines = study.main.certificates.methods, []
    for method in methods:
        both = {averaging: study.main_curve(method, averaging) for averaging in AVERAGINGS}
        lines.append(Line(method, METHOD_NAMES.get(method, method), both, method == study.method))
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
        value, methods = curve.config.parameters.get(key), curve.config.methods
        same = curve.config.vary(key, base).replace(methods=study.config.methods) == study.config
        # A config without the study's method has the default one of its own number of draws.
        if value is not None and same and curve.method == (study.method if study.method in methods else methods[0]):
            swept.setdefault(value, {})[curve.averaging] = curve
    lines = tuple(
        Line(plain(value), f"{symbol} = {plain(value)}", both, value == base) for value, both in sorted(swept.items())
    )
    bands = study.main.certificates.noise.enumerated
    note = _CERTAIN if bands else POINTWISE
    if not study.labelled and key not in ("n", "alpha"):
        note = f"{_LABELS_CHOSEN_AGAIN.format('The bands' if bands else 'Pilot draws')}\n{note}"
    return Family(key, symbol, title, note, rule_measures(study.rule, labelled=study.labelled), lines, ordered=True)


def run_families(study: "Study") -> list[Family]:
    """Every comparison of the main run, whose name is empty here, with other runs."""
    main, runs = study.main, {"": study.main, **study.beside}
    same_rule = {name: run for name, run in runs.items() if run.certificates.rule_name == study.rule}
    rules = {name: run for name, run in runs.items() if not name or name not in same_rule}
    same_config = {name: run for name, run in same_rule.items() if _config(run) == _config(main)}
    levels = {name: run for name, run in same_config.items() if _without_noise(run) == _without_noise(main)}
    trained = {name: run for name, run in same_config.items() if run.certificates.noise == main.certificates.noise}
    trained = trained if len({_without_noise(run) for run in trained.values()}) > 1 else {}
    others = {name: run for name, run in same_rule.items() if not name or name not in {**levels, **trained}}
    level_words = {name: run.certificates.noise.words for name, run in levels.items()}
    training_words = {name: _training_words(run) for name, run in trained.items()}
    families = [
        _family(study, levels, level_words, "noise", "noise", "Noise level"),
        _family(study, trained, training_words, "training", "training", "Training with and without noise"),
        _rules_family(study, rules),
        _family(study, others, _differences(study, others), "runs", "run", "Other runs"),
    ]
    return [family for family in families if family is not None]


def _config(run: Results) -> tuple[object, object]:
    """What two runs must share to be compared in their noise or their training."""
    return run.certificates.config.parameters, run.provenance.get("stops")


def _without_noise(run: Results) -> bool:
    return run.provenance.get("trained_noise") == NO_NOISE


def _training_words(run: Results) -> str:
    trained = run.provenance.get("trained_noise")
    if trained is None:
        return "noise in training unknown"
    return "trained without noise" if trained == NO_NOISE else f"trained with {parse_noise(trained).words}"


def _differences(study: "Study", runs: Runs) -> dict[str, str]:
    """Each run by its name and what sets it apart from the main run, which gets all that any run differs in."""
    words = {name: _all_words(run) | {"method": f"method {_method(study, run)}"} for name, run in runs.items()}
    apart = {name: [key for key, text in each.items() if text != words[""].get(key)] for name, each in words.items()}
    apart[""] = [key for key in words[""] if any(key in keys for keys in apart.values())]
    texts = {name: ", ".join(words[name][key] for key in keys) for name, keys in apart.items()}
    return {name: ": ".join(filter(None, [name or THIS_RUN, text])) for name, text in texts.items()}


def _all_words(run: Results) -> dict[str, str]:
    words = config_words(run)
    if run.provenance.get("stops") is not None:
        words["n"] = f"adaptive, {words['n']}"
    return {**words, "training": _training_words(run)}


def _rules_family(study: "Study", runs: Runs) -> Family | None:
    """Both rules; each line is named by its rule's parameters and by all else that sets it apart."""
    main, values = config_words(study.main), {}
    for name, run in runs.items():
        words, method = config_words(run).items(), _method(study, run)
        apart = [text for key, text in words if key not in ("n", "alpha", "noise") or text != main.get(key)]
        proof = [] if method == study.method else [METHOD_NAMES.get(method, method)]
        values[name] = ", ".join([run.certificates.rule_name, *apart, *proof])
    family = _family(study, runs, values, "rules", "rule", "Top-k and threshold rules")
    if family is None:
        return None
    note = _TWO_RULES if study.labelled else f"{_TWO_RULES} {_OWN_LABELS}"
    measures = rule_measures("threshold", labelled=study.labelled)
    return replace(family, note=f"{note}\n{family.note}", measures=measures)


def _method(study: "Study", run: Results) -> Method:
    """The study's method, or the first of a run that does not have it: one of the other rule, or an adaptive one."""
    methods, adaptive = run.certificates.methods, run.provenance.get("stops") is not None
    fallback = run.certificates.rule_name != study.rule or adaptive != (study.main.provenance.get("stops") is not None)
    return methods[0] if fallback and study.method not in methods else study.method


def _family(study: "Study", runs: Runs, values: Words, key: FamilyKey, symbol: str, title: str) -> Family | None:
    """The runs as lines on one grid of radii; None for less than two. Equal values get the names of their runs."""
    if len(runs) < 2:
        return None
    ordered, counts = key == "noise", Counter(values.values())
    grid = np.unique([radius for run in runs.values() for curve in run.curves for radius in curve.scores.radius])
    lines = []
    for name in sorted(runs, key=lambda name: runs[name].certificates.noise.typical_radius) if ordered else runs:
        text = f"{values[name]} ({name or THIS_RUN})" if counts[values[name]] > 1 else values[name]
        if (both := _curves_at(runs[name], _method(study, runs[name]), grid)) is not None:
            lines.append(Line(text, text, both, not name))
    failures = _failure_lines(runs, values)
    note, measures = "\n".join([POINTWISE, *failures]), rule_measures(study.rule, labelled=study.labelled)
    return Family(key, symbol, title, note, measures, tuple(lines), ordered)


def _failure_lines(runs: Runs, names: Words) -> list[str]:
    """A line for each run that failed on other images than the main run: its averages are over other images."""
    failed = {name: {failure.image_id for failure in run.certificates.failures} for name, run in runs.items()}
    other = {name: run for name, run in runs.items() if failed[name] != failed[""]}
    return [f"{names[name]}: {failure_words(run) or 'no image failed.'}" for name, run in other.items()]


def _curves_at(run: Results, method: Method, grid: Floats) -> dict[Averaging, Curve] | None:
    """The run's curves of the method at these radii, computed only if its own have other radii; None without any."""
    config = run.certificates.config
    own = {curve.averaging: curve for curve in run.curves if (curve.method, curve.config) == (method, config)}
    if not own:
        return None
    if set(own) == set(AVERAGINGS) and all(np.array_equal(curve.scores.radius, grid) for curve in own.values()):
        return own
    levels = [curve.bands.level for curve in own.values() if curve.bands is not None]
    computed = curves(run.certificates, grid, bands=levels[0] if levels else None)
    return {curve.averaging: curve for curve in computed if curve.method == method}
