"""Curves that belong in one picture: the methods, each sweep, the noise, the training, the other runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from multiguard.certify.types import Floats
from multiguard.evaluate import Averaging, CertificatesFolder, Curve, curves
from multiguard.report.rounding import plain
from multiguard.report.strokes import Stroke, strokes_apart, strokes_in_order
from multiguard.report.study import Study

Parameter = Literal["k_prime", "k", "draws", "alpha"]
AVERAGINGS: tuple[Averaging, ...] = ("mean", "pooled")
POINT_BY_POINT = (
    "Each curve is valid point by point, for the setting it was asked in beforehand; "
    "the best of them, picked after looking, is not covered by the probability 1 − α."
)
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


@dataclass(frozen=True, eq=False)
class Family:
    """Lines that differ in one thing.

    Attributes:
        key: Its name in file names and column heads.
        symbol: What the lines differ in, as a table's column head.
        title: Its heading.
        note: What to know when reading it.
        lines: At least one for the methods, at least two for all others.
        ordered: Whether the lines stand in the order of a number.
    """

    key: str
    symbol: str
    title: str
    note: str
    lines: tuple[Line, ...]
    ordered: bool

    @property
    def strokes(self) -> list[Stroke]:
        """How each line is drawn, in order."""
        if not self.ordered:
            return strokes_apart(len(self.lines))
        base = next((i for i, line in enumerate(self.lines) if line.is_base), 0)
        return strokes_in_order(len(self.lines), base)


def families(study: Study) -> list[Family]:
    """All families of the study whose data is there, the methods first."""
    found = [methods_family(study), *sweep_families(study), *run_families(study)]
    return [family for family in found if len(family.lines) > 1 or family.key == "methods"]


def methods_family(study: Study) -> Family:
    """Every method of the main run in its own setting."""
    names = study.main.certificates.methods
    lines = tuple(
        Line(
            name,
            METHOD_NAMES[name],
            {averaging: study.main_curve(name, averaging) for averaging in AVERAGINGS},
            name == study.method,
        )
        for name in names
    )
    note = POINT_BY_POINT if len(names) > 1 else ""
    return Family("methods", "method", "Methods on the same votes", note, lines, ordered=False)


_SWEPT: Mapping[Parameter, tuple[str, str, str]] = {
    "k_prime": ("k_prime", "k′", "Labels the base classifier returns, k′"),
    "k": ("k", "k", "Labels the smoothed classifier returns, k"),
    "draws": ("n", "n", "Draws of noise, n"),
    "alpha": ("alpha", "α", "Probability of error, α"),
}


def sweep_families(study: Study) -> list[Family]:
    """One family for each parameter, of the curves that differ from the main setting in nothing else."""
    return [_sweep(study, parameter) for parameter in _SWEPT]


def _sweep(study: Study, parameter: Parameter) -> Family:
    base = study.setting
    found: dict[float, dict[Averaging, Curve]] = {}
    for curve in study.main.curves:
        value = getattr(curve.setting, parameter)
        if curve.method == study.method and replace(curve.setting, **{parameter: getattr(base, parameter)}) == base:
            found.setdefault(value, {})[curve.averaging] = curve
    key, symbol, title = _SWEPT[parameter]
    lines = tuple(
        Line(plain(value), f"{symbol} = {plain(value)}", both, value == getattr(base, parameter))
        for value, both in sorted(found.items())
    )
    return Family(key, symbol, title, POINT_BY_POINT, lines, ordered=True)


def run_families(study: Study) -> list[Family]:
    """The main run beside others: of another sigma, trained with and without noise, and any that are neither."""
    runs = {"": study.main, **study.beside}
    alike = {name: run for name, run in runs.items() if run.certificates.setting == study.setting}
    untrained = _without_noise(study.main)
    sigmas = {name: run for name, run in alike.items() if _without_noise(run) == untrained}
    training = {name: run for name, run in alike.items() if run.certificates.sigma == study.main.certificates.sigma}
    trainings = training if len({_without_noise(run) for run in training.values()}) > 1 else {}
    others = {name: run for name, run in runs.items() if not name or (name not in sigmas and name not in trainings)}
    return [
        _runs(study, sigmas, "sigma", "σ", "Noise, σ", _sigma_value, ordered=True),
        _runs(study, trainings, "training", "training", "Training with and without noise", _training_value),
        _runs(study, others, "runs", "run", "Other runs", _run_value),
    ]


def _without_noise(run: CertificatesFolder) -> bool:
    return run.provenance.get("trained_sigma") == 0.0


def _sigma_value(_name: str, run: CertificatesFolder) -> str:
    return plain(run.certificates.sigma)


def _training_value(_name: str, run: CertificatesFolder) -> str:
    trained = run.provenance.get("trained_sigma")
    if trained is None:
        return "noise in training unknown"
    return f"trained with noise {plain(trained)}" if trained else "trained without noise"


def _run_value(name: str, _run: CertificatesFolder) -> str:
    return name or "this run"


def _runs(
    study: Study,
    runs: Mapping[str, CertificatesFolder],
    key: str,
    symbol: str,
    title: str,
    value: Callable[[str, CertificatesFolder], str],
    *,
    ordered: bool = False,
) -> Family:
    """The runs as lines on one grid of radii; two that read alike carry their names."""
    grid = np.unique([radius for run in runs.values() for curve in run.curves for radius in curve.scores.radius])
    order = sorted(runs, key=lambda name: runs[name].certificates.sigma) if ordered else list(runs)
    values = {name: value(name, runs[name]) for name in order}
    lines = []
    for name in order:
        if (both := _on_grid(runs[name], study, grid)) is not None:
            alike = list(values.values()).count(values[name]) > 1
            text = f"{values[name]} ({name or 'this run'})" if alike and key != "runs" else values[name]
            lines.append(Line(text, f"{symbol} = {text}" if ordered else text, both, not name))
    return Family(key, symbol, title, POINT_BY_POINT, tuple(lines), ordered)


def _on_grid(run: CertificatesFolder, study: Study, grid: Floats) -> dict[Averaging, Curve] | None:
    """The run's curve of the study's method at these radii, banded as its own are; None where it has none."""
    own = next((curve for curve in run.curves if curve.method == study.method), None)
    if own is None:
        return None
    asked = {} if own.bands is None else {"resamples": own.bands.resamples, "seed": own.bands.seed}
    level = None if own.bands is None else own.bands.level
    made = curves(run.certificates, grid, bands=level, **asked)
    return {curve.averaging: curve for curve in made if curve.method == study.method}
