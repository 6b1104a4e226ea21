"""The main run beside others: of another sigma, another training, the other rule, and any that are none of these."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.evaluate import Averaging, Curve, curves
from multiguard.report.family import METHOD_NAMES, POINT_BY_POINT, Family, FamilyKey, Line
from multiguard.report.measure import rules_measures, study_measures
from multiguard.report.rounding import plain
from multiguard.report.study import Study
from multiguard.report.words import failed_words, setting_words
from multiguard.results import CertificatesFolder

Runs = Mapping[str, CertificatesFolder]
THIS_RUN = "this run"
_TWO_RULES = (
    "Top-k returns k labels whatever happens to the image; the threshold rule returns those that pass, few or many."
)
_OWN_LABELS = "Each has the labels that it predicts itself."


def run_families(study: Study) -> list[Family]:
    """Every comparison of the main run with others; some have one line only, the main run's."""
    runs = {"": study.main, **study.beside}
    same_rule = {name: run for name, run in runs.items() if run.certificates.rule_name == study.rule}
    rules = {name: run for name, run in runs.items() if not name or name not in same_rule}
    alike = {name: run for name, run in same_rule.items() if _asked(run) == _asked(study.main)}
    untrained = _without_noise(study.main)
    sigmas = {name: run for name, run in alike.items() if _without_noise(run) == untrained}
    training = {name: run for name, run in alike.items() if run.certificates.sigma == study.main.certificates.sigma}
    trainings = training if len({_without_noise(run) for run in training.values()}) > 1 else {}
    others = {name: run for name, run in same_rule.items() if not name or name not in {**sigmas, **trainings}}
    return [
        _runs(study, sigmas, "sigma", "σ", "Noise, σ", _sigma_value, ordered=True),
        _runs(study, trainings, "training", "training", "Training with and without noise", _training_value),
        _rules(study, rules),
        _runs(study, others, "runs", "run", "Other runs", _run_value(study, others)),
    ]


def _asked(run: CertificatesFolder) -> tuple[object, object]:
    """What two runs must agree in to be compared in their noise or their training: the setting, and how n was found."""
    return run.certificates.config, run.provenance.get("looks")


def _without_noise(run: CertificatesFolder) -> bool:
    return run.provenance.get("trained_sigma") == 0.0


def _sigma_value(_name: str, run: CertificatesFolder) -> str:
    return plain(run.certificates.sigma)


def _training_value(_name: str, run: CertificatesFolder) -> str:
    trained = run.provenance.get("trained_sigma")
    if trained is None:
        return "noise in training unknown"
    return f"trained with noise {plain(trained)}" if trained else "trained without noise"


def _run_value(study: Study, runs: Runs) -> Callable[[str, CertificatesFolder], str]:
    """The run's name and what it differs in from this run; this run's own with it, to compare."""
    own = _all_words(study.main)
    differs = {
        name: [key for key, text in _all_words(run).items() if text != own.get(key)] for name, run in runs.items()
    }
    differs[""] = [key for key in own if any(key in keys for keys in differs.values())]

    def value(name: str, run: CertificatesFolder) -> str:
        words = _all_words(run)
        return ": ".join(filter(None, [name or THIS_RUN, ", ".join(words[key] for key in differs[name])]))

    return value


def _all_words(run: CertificatesFolder) -> dict[str, str]:
    adaptive = "" if run.provenance.get("looks") is None else "adaptive, "
    words = setting_words(run)
    return {**words, "n": adaptive + words["n"], "training": _training_value("", run)}


def _rules(study: Study, runs: Runs) -> Family:
    """The two rules: each line is named by what its rule was asked, and by all else in which it differs."""
    own, shared = setting_words(study.main), ("n", "alpha", "sigma")

    def value(_name: str, run: CertificatesFolder) -> str:
        asked = setting_words(run)
        differs = [text for key, text in asked.items() if key not in shared or text != own[key]]
        method = _method(study, run)
        proved = [] if method == study.method else [METHOD_NAMES[method]]
        return ", ".join([run.certificates.rule_name, *differs, *proved])

    made = _runs(study, runs, "rules", "rule", "Top-k and threshold beside each other", value)
    words = _TWO_RULES if study.labelled else f"{_TWO_RULES} {_OWN_LABELS}"
    return replace(made, note=f"{words}\n{made.note}", measures=rules_measures(study))


def _method(study: Study, run: CertificatesFolder) -> Method:
    """The study's method, or where a run of the other rule does not have it, that run's first."""
    known = run.certificates.methods
    return study.method if study.method in known or run.certificates.rule_name == study.rule else known[0]


def _runs(
    study: Study,
    runs: Runs,
    key: FamilyKey,
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
        if (both := _on_grid(runs[name], _method(study, runs[name]), grid)) is not None:
            alike = list(values.values()).count(values[name]) > 1
            text = f"{values[name]} ({name or THIS_RUN})" if alike and key != "runs" else values[name]
            lines.append(Line(text, f"{symbol} = {text}" if ordered else text, both, not name))
    names = {name: f"{symbol} = {text}" if ordered else text for name, text in values.items()}
    note = "\n".join([POINT_BY_POINT, *_failed_otherwise(study, runs, names)])
    return Family(key, symbol, title, note, study_measures(study), tuple(lines), ordered)


def _failed_otherwise(study: Study, runs: Runs, names: Mapping[str, str]) -> list[str]:
    """A line for each run that could not vote on other images than the main run: it averages over other ones."""
    main = _failed(study.main)
    return [
        f"{names[name]}: {failed_words(run) or 'all images could be voted on.'}"
        for name, run in runs.items()
        if _failed(run) != main
    ]


def _failed(run: CertificatesFolder) -> set[str]:
    return {failure.image_id for failure in run.certificates.failures}


def _on_grid(run: CertificatesFolder, method: Method, grid: Floats) -> dict[Averaging, Curve] | None:
    """The run's curve of the method at these radii, banded as its own are; None where it has none."""
    own = next((curve for curve in run.curves if curve.method == method), None)
    if own is None:
        return None
    asked = {} if own.bands is None else {"resamples": own.bands.resamples, "seed": own.bands.seed}
    level = None if own.bands is None else own.bands.level
    made = curves(run.certificates, grid, bands=level, **asked)
    return {curve.averaging: curve for curve in made if curve.method == method}
