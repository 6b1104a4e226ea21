"""The families of a study: its methods, its sweeps, and the main run beside others."""

from collections.abc import Mapping
from typing import Literal

from multiguard.evaluate import Averaging, Curve
from multiguard.report.family import AVERAGINGS, METHOD_NAMES, POINT_BY_POINT, Family, FamilyKey, Line
from multiguard.report.measure import study_measures
from multiguard.report.rounding import plain
from multiguard.report.runs import run_families
from multiguard.report.study import Study

Parameter = Literal["k_prime", "k", "threshold", "n", "alpha"]
_CHOSEN_ANEW = "For each curve pilot draws chose the labels anew."


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
    return Family("methods", "method", "Methods on the same votes", note, study_measures(study), lines, ordered=False)


_SWEPT: Mapping[Parameter, tuple[FamilyKey, str, str]] = {
    "k_prime": ("k_prime", "k′", "Labels the base classifier returns, k′"),
    "k": ("k", "k", "Labels the smoothed classifier returns, k"),
    "threshold": ("threshold", "t", "Share of the draws that a label needs, t"),
    "n": ("n", "n", "Draws of noise, n"),
    "alpha": ("alpha", "α", "Probability of error, α"),
}


def sweep_families(study: Study) -> list[Family]:
    """One family for each parameter of the rule, of the curves that differ from the main setting in nothing else."""
    return [_sweep(study, parameter) for parameter in _SWEPT if parameter in study.config.parameters]


def _sweep(study: Study, parameter: Parameter) -> Family:
    base = study.config
    found: dict[float, dict[Averaging, Curve]] = {}
    for curve in study.main.curves:
        value = curve.config.parameters[parameter]
        assert value is not None
        if curve.method == study.method and curve.config.vary(parameter, base.parameters[parameter]) == base:
            found.setdefault(value, {})[curve.averaging] = curve
    key, symbol, title = _SWEPT[parameter]
    lines = tuple(
        Line(plain(value), f"{symbol} = {plain(value)}", both, value == base.parameters[parameter])
        for value, both in sorted(found.items())
    )
    note = POINT_BY_POINT if study.labelled or key in ("n", "alpha") else f"{_CHOSEN_ANEW}\n{POINT_BY_POINT}"
    return Family(key, symbol, title, note, study_measures(study), lines, ordered=True)
