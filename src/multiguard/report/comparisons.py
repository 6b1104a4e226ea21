"""Families that compare the main run with others: another noise, another training, the other rule, any other run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.certify.noise import NO_NOISE, parse_noise
from multiguard.evaluate import Averaging, Curve, curves
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.report.families import METHOD_NAMES, POINTWISE, Family, FamilyKey, Line, rule_measures
from multiguard.report.words import config_words, failure_words
from multiguard.results import Results

if TYPE_CHECKING:
    from multiguard.report.study import Study

Runs = Mapping[str, Results]
Words = Mapping[str, str]
_THIS_RUN = "this run"
_TWO_RULES = "The top-k rule always returns k labels; the threshold rule returns every label that reaches t."
_OWN_LABELS = "Each run certifies the labels that it predicts itself."


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
    return run.certificates.config, run.provenance.get("stops")


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
    return {name: ": ".join(filter(None, [name or _THIS_RUN, text])) for name, text in texts.items()}


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
        text = f"{values[name]} ({name or _THIS_RUN})" if counts[values[name]] > 1 else values[name]
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
