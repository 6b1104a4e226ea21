"""What a report is about: a run, other runs on the same images, and their curves in families that differ in one thing.

Everything that figures, tables and the page share is computed here, once.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.certify.noise import NO_NOISE, Noise, parse_noise
from multiguard.certify.rules import RuleName
from multiguard.errors import InvalidInputError
from multiguard.evaluate import (
    Averaging,
    CertifyConfig,
    Curve,
    LabelScores,
    Results,
    Scores,
    curves,
    label_scores,
    prediction_scores,
)
from multiguard.evaluate.calibration import Calibration
from multiguard.evaluate.certificates import Labels
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.io.names import short_repr
from multiguard.io.records import Rows
from multiguard.io.rounding import percent_value, plain, round_up
from multiguard.report.words import METHOD_NAMES, failure_words, first_radius

Prediction = Literal["bare", "smoothed"]  # the base classifier without noise, and the smoothed one
Score = Literal["precision", "recall", "f1", "false_ceiling"]
FamilyKey = Literal["methods", "k_prime", "k", "threshold", "n", "alpha", "noise", "training", "runs"]
Runs = Mapping[str, Results]
_SWEPT: Mapping[FamilyKey, tuple[str, str]] = {
    "k_prime": ("k′", "Labels returned by the base classifier, k′"),
    "k": ("k", "Labels returned by the smoothed classifier, k"),
    "threshold": ("t", "Threshold of the smoothed classifier, t"),
    "n": ("n", "Noise draws, n"),
    "alpha": ("α", "Error probability, α"),
}
_POINTWISE = (
    "Each curve is valid pointwise, for a configuration fixed in advance; "
    "the best of several, picked after looking, is not covered by the probability 1 − α."
)
_CERTAIN = "Every band votes, so each curve holds for certain, and so does the best of several."
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

    def values(self, curve: Curve) -> Floats:
        """(radii,) of the curve."""
        values: Floats = getattr(curve.scores, self.key)
        return values

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

    def top(self, measure: Measure) -> float | None:
        """Where the axis of a ceiling is cut off, since a high ceiling says next to nothing; None if it is not."""
        highest = max(float(measure.values(curve).max()) for line in self.lines for curve in line.curves.values())
        return _HIGHEST_CEILING if not measure.is_fraction and highest > _HIGHEST_CEILING else None


@dataclass(frozen=True, eq=False)
class Study:
    """One run, and runs with other noise or other training that differ from it in nothing else; all on the same images.

    Where a run failed on an image, its averages are over one image less than another's, and every summary says so.

    Example:
        >>> run = read_certificates(certificates)  # a folder written by `multiguard certify`
        >>> study = Study(run, title="Certified digits")
        >>> [family.key for family in study.families]
        ['methods', 'k']
    """

    main: Results  # the run that the report is about
    others: Runs = field(default_factory=dict)  # by name, those with other noise, in the votes or in training
    title: str = "Certified robustness"
    commands: Sequence[str] = ()  # the command lines that reproduce it, in order
    calibration: Calibration | None = None  # of the main run's classifier and noise: what can be promised
    notes: list[str] = field(default_factory=list)  # what `report` has to say of the page: images not shown, failures

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_alike({"this run": self.main, **self.others})
        for name, run in self.others.items():
            if not _same_images(run, self.main) or _shared(run) != _shared(self.main):
                raise InvalidInputError(
                    f"the run '{name}' is about other images or labels than the main run, or is certified with another "
                    "config; only the noise and the training may differ here: `multiguard report A B` compares any runs"
                )
        grids = {tuple(curve.scores.radius.tolist()) for curve in self.main.curves}
        if len(grids) != 1 or any(low >= high for low, high in pairwise(next(iter(grids)))):
            raise InvalidInputError(
                "the curves of the main run must all have the same radii, from small to large; certify again with one "
                "list of radii"
            )

    @property
    def config(self) -> CertifyConfig:
        """The config of the main run."""
        return self.main.certificates.config

    @property
    def rule(self) -> RuleName:
        """The name of the main run's rule."""
        return self.config.rule.name

    @property
    def labelled(self) -> bool:
        """Whether the true labels are certified; if not, pilot draws chose the labels."""
        return self.main.certificates.labelled

    @property
    def exact(self) -> bool:
        """Whether nothing is random: every band of an ablation votes."""
        return self.main.certificates.noise.enumerated

    @property
    def method(self) -> Method:
        """The method of sweeps and comparisons: the first one of the main run."""
        return self.main.certificates.methods[0]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The scores of the main run."""
        return rule_measures(self.rule, labelled=self.labelled)

    @property
    def grid(self) -> Floats:
        """(radii,), where the curves of the main run are evaluated."""
        return self.main_curve(self.method, "mean").scores.radius

    @property
    def start(self) -> int:
        """The index of the radius shown first: that of the noise, or the first that adaptive draws were spent on."""
        return int(np.argmin(np.abs(self.grid - first_radius(self.main))))

    @property
    def stops(self) -> dict[int, int]:
        """How many images stopped after each number of draws; empty where n is fixed."""
        draws = self.main.certificates.draws
        return {stop: draws.count(stop) for stop in self.main.provenance.get("stops") or ()}

    @cached_property
    def families(self) -> list[Family]:
        """The families of curves that have data, the methods first."""
        swept = [_sweep(self, key) for key in _SWEPT if key in self.config.parameters]
        return [_methods(self), *(family for family in (*swept, *_run_families(self)) if len(family.lines) > 1)]

    @cached_property
    def label_scores(self) -> list[LabelScores]:
        """How often each label is certified at each radius of the grid, the label with the most images first."""
        scores = label_scores(self.main.certificates, self.grid)
        return sorted(scores, key=lambda label: (-label.images, label.label))

    @cached_property
    def clean_scores(self) -> dict[Prediction, dict[Averaging, Scores]]:
        """What is right without any perturbation, as observed: the price of smoothing. Empty without true labels.

        Of the base classifier without noise, over the images whose votes say so; and of the smoothed one.
        """
        proved = self.main.certificates
        returned: dict[Prediction, Rows[Any]] = {"bare": proved.bare, "smoothed": proved.predicted}
        found: dict[Prediction, dict[Averaging, Scores]] = {}
        for name, predicted in returned.items() if self.labelled else ():
            known = np.flatnonzero(~predicted.missing).tolist()
            labels: Sequence[Labels] = [proved.labels[i] for i in known]
            answers: Sequence[Labels] = [predicted[i] for i in known]
            if any(labels):
                found[name] = {
                    each: prediction_scores(labels, answers, each, k=self.config.rule.k) for each in AVERAGINGS
                }
        return found

    def main_curve(self, method: Method, averaging: Averaging) -> Curve:
        """The curve of the main run in its own config, as its file holds it."""
        for curve in self.main.curves:
            if (curve.method, curve.averaging, curve.config) == (method, averaging, self.config):
                return curve
        raise InvalidInputError(f"the certificates have no curve of the method {method} ({averaging}); certify again")


def _methods(study: Study) -> Family:
    """Every method of the main run in its own config."""
    methods, lines = study.main.certificates.methods, []
    for method in methods:
        both = {averaging: study.main_curve(method, averaging) for averaging in AVERAGINGS}
        lines.append(Line(method, METHOD_NAMES.get(method, method), both, method == study.method))
    note = _POINTWISE if len(methods) > 1 else ""
    return Family("methods", "method", "Methods on the same votes", note, study.measures, tuple(lines))


def _sweep(study: Study, key: FamilyKey) -> Family:
    """The curves whose config differs from the main one in this parameter alone."""
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
    note = _CERTAIN if study.exact else _POINTWISE
    if not study.labelled and key not in ("n", "alpha"):
        note = f"{'The bands' if study.exact else 'Pilot draws'} chose the labels again for each curve.\n{note}"
    return Family(key, symbol, title, note, study.measures, lines, ordered=True)


def _run_families(study: Study) -> list[Family]:
    """The main run, whose name is empty here, with runs at other noise, and with runs of other training."""
    main, runs = study.main, {"": study.main, **study.others}
    bare = {name: run.provenance.get("trained_noise") == NO_NOISE for name, run in runs.items()}
    levels = {name: run for name, run in runs.items() if bare[name] == bare[""]}
    trained = {name: run for name, run in runs.items() if run.certificates.noise == main.certificates.noise}
    trained = trained if len({bare[name] for name in trained}) > 1 else {"": main}
    words = {name: run.certificates.noise.words for name, run in levels.items()}
    training = {name: _training_words(run.provenance.get("trained_noise")) for name, run in trained.items()}
    return [
        _of_runs(study, levels, words, "noise", "Noise level"),
        _of_runs(study, trained, training, "training", "Training with and without noise"),
    ]


def _training_words(trained: str | None) -> str:
    if trained is None:
        return "noise in training unknown"
    if trained == NO_NOISE:
        return "trained without noise"
    noise, *largest = trained.split(" to ")
    return f"trained with {' to '.join([parse_noise(noise).words, *largest])}"


def _of_runs(study: Study, runs: Runs, values: Mapping[str, str], key: FamilyKey, title: str) -> Family:
    """The runs as lines on one grid of radii; equal values get the names of their runs."""
    ordered, counts = key == "noise", Counter(values.values())
    grid = np.unique([radius for run in runs.values() for curve in run.curves for radius in curve.scores.radius])
    lines = []
    for name in sorted(runs, key=lambda name: runs[name].certificates.noise.typical_radius) if ordered else runs:
        text = f"{values[name]} ({name or 'this run'})" if counts[values[name]] > 1 else values[name]
        lines.append(Line(text, text, _curves_at(runs[name], study.method, grid), not name))
    failed = {name: {failure.image_id for failure in run.certificates.failures} for name, run in runs.items()}
    other = {name: run for name, run in runs.items() if failed[name] != failed[""]}  # averages are over other images
    notes = [f"{values[name]}: {failure_words(run) or 'no image failed.'}" for name, run in other.items()]
    return Family(key, key, title, "\n".join([_POINTWISE, *notes]), study.measures, tuple(lines), ordered)


def _curves_at(run: Results, method: Method, grid: Floats) -> dict[Averaging, Curve]:
    """The run's curves of the method at these radii, computed only if its own have other radii."""
    config = run.certificates.config
    own = {curve.averaging: curve for curve in run.curves if (curve.method, curve.config) == (method, config)}
    if set(own) == set(AVERAGINGS) and all(np.array_equal(curve.scores.radius, grid) for curve in own.values()):
        return own
    levels = [curve.bands.level for curve in own.values() if curve.bands is not None]
    computed = curves(run.certificates, grid, bands=levels[0] if levels else None)
    return {curve.averaging: curve for curve in computed if curve.method == method}


def round_radii(grid: Floats, noise: Noise, half_steps: Sequence[int]) -> list[tuple[int, float]]:
    """The indices and values in the grid of these halves of the typical radius; evenly spread ones if it has too few.

    Where radii are whole numbers, the halves are rounded up.
    """
    wanted = half_radii(noise, half_steps)
    nearest = [int(np.argmin(np.abs(grid - radius))) for radius in wanted]
    close = [i for i, radius in zip(nearest, wanted, strict=True) if np.isclose(grid[i], radius)]
    if len(close) < min(2, len(grid)):
        close = np.linspace(0, len(grid) - 1, len(half_steps)).round().astype(int).tolist()
    return [(i, float(grid[i])) for i in sorted(set(close))]


def half_radii(noise: Noise, half_steps: Sequence[int]) -> list[float]:
    """These halves of the typical radius, rounded up where radii are whole numbers."""
    halves = [half * noise.typical_radius / 2 for half in half_steps]
    return [float(math.ceil(half)) for half in halves] if noise.whole else halves


def check_alike(runs: Runs) -> None:
    """Raises unless all runs are about one attacker, so that the same R is the same attack, and one kind of labels."""
    proved = {name: run.certificates for name, run in runs.items()}
    kinds = {True: "the true labels", False: "labels that pilot draws chose"}
    checks = {
        "are about different attackers and have no common radius": [each.noise.attacker for each in proved.values()],
        "certify different labels and cannot be compared": [kinds[each.labelled] for each in proved.values()],
    }
    for problem, values in checks.items():
        if len(set(values)) > 1:
            words = ", ".join(f"{name} {value}" for name, value in zip(proved, values, strict=True))
            raise InvalidInputError(f"these runs {problem}: {words}")


def _shared(run: Results) -> tuple[object, ...]:
    """The rule, n, alpha, the method and the looks."""
    return run.certificates.config.parameters, run.certificates.methods[0], run.provenance.get("stops")


def _same_images(one: Results, other: Results) -> bool:
    """Whether both are about the same images, failed ones included, and agree on the true labels of each."""
    mine, others = true_labels(one), true_labels(other)
    agree = (labels == others[i] or labels is None or others[i] is None for i, labels in mine.items() if i in others)
    return mine.keys() == others.keys() and all(agree)


def true_labels(run: Results) -> dict[str, set[str] | None]:
    """The names of each image's true labels; None where it failed, empty where pilot draws chose the labels."""
    proved = run.certificates
    names = ({proved.label_names[label] for label in labels if proved.labelled} for labels in proved.labels)
    failed = {failure.image_id: None for failure in proved.failures}
    return {**failed, **dict(zip(proved.ids, names, strict=True))}
