"""Which curves are shown together, that they are the right ones, and at the same radii."""

import numpy as np
import pytest
from tests.report.studies import ADAPTIVE, SWEPT, UNLABELLED, make_run

from multiguard.certify import TopK
from multiguard.evaluate import CertifyConfig, set_scores
from multiguard.report import Study
from multiguard.report.families import Family


def by_key(study: Study) -> dict[str, Family]:
    return {family.key: family for family in study.families}


def score_keys(family: Family) -> list[str]:
    return [measure.key for measure in family.measures]


@pytest.mark.parametrize("key", ["k_prime", "k", "n", "alpha"])
def test_sweep_lines(study: Study, key: str) -> None:
    """A sweep varies one parameter of the first method."""
    lines, base = by_key(study)[key].lines, study.config.parameters[key]
    varied = [line.curves["mean"].config.parameters[key] for line in lines]
    assert varied == sorted({*SWEPT[key], base})
    assert [line.is_base for line in lines] == [value == base for value in varied]
    for line in lines:
        assert set(line.curves) == {"mean", "pooled"}
        for averaging, curve in line.curves.items():
            assert (curve.method, curve.averaging) == ("joint", averaging)
            assert curve.config.vary(key, base) == study.config


def test_threshold_families(threshold: Study) -> None:
    """The threshold rule sweeps t and has a ceiling."""
    families = by_key(threshold)
    assert list(families) == ["methods", "threshold", "n", "alpha", "rules"]
    assert [line.name for line in families["threshold"].lines] == ["t = 0.1", "t = 0.3", "t = 0.6"]
    assert [line.is_base for line in families["threshold"].lines] == [False, True, False]
    assert all(score_keys(family) == ["precision", "recall", "f1", "false_ceiling"] for family in families.values())


def test_predicted_labels(unlabelled: Study, tmp_path) -> None:
    """Predicted labels have neither precision nor F1, and are chosen again for each k."""
    assert all(score_keys(family) == ["recall", "false_ceiling"] for family in unlabelled.families)
    families = by_key(Study(make_run(tmp_path, **UNLABELLED, swept=True)))
    assert all(score_keys(family) == ["recall"] for family in families.values())
    assert "chose the labels again" in families["k"].note
    assert "chose the labels again" not in families["alpha"].note


def line_names(study: Study, key: str) -> list[str]:
    return [line.name for line in by_key(study)[key].lines]


def test_grouping(study: Study) -> None:
    """Runs are grouped by their provenance."""
    assert line_names(study, "noise") == ["σ = 0.25", "σ = 0.5"]
    assert line_names(study, "training") == ["trained with σ = 0.5", "trained without noise"]
    assert line_names(study, "runs") == ["this run: k = 5", "more labels: k = 8"]


def test_differences_named(tmp_path) -> None:
    """Other runs are named with what sets them apart."""
    main = make_run(tmp_path / "main")
    adaptive = make_run(tmp_path / "adaptive", **ADAPTIVE)
    louder = make_run(tmp_path / "louder", sigma=1.0, trained=None, config=CertifyConfig(k=8, k_prime=2))
    assert line_names(Study(main, {"early stops": adaptive, "louder": louder}), "runs") == [
        "this run: k = 5, n = 100, σ = 0.5, trained with σ = 0.5, method joint",
        "early stops: adaptive, n up to 100 (70 on average), method betting",
        "louder: k = 8, σ = 1, noise in training unknown",
    ]


def test_common_radii(study: Study) -> None:
    """Runs are compared at the radii of all of them, with the scores of their own certificates."""
    runs = {True: study.main, False: study.beside["low noise"]}
    grid = sorted({float(radius) for run in runs.values() for radius in run.curves[0].scores.radius})
    for line in by_key(study)["noise"].lines:
        certificates, scores = runs[line.is_base].certificates, line.curves["pooled"].scores
        assert scores.radius.tolist() == grid
        true = [len(labels) for labels in certificates.labels]
        expected = set_scores(
            certificates.set_radii("joint"),
            TopK(k=5, k_prime=2),
            num_true=true,
            radius=scores.radius,
            averaging="pooled",
        )
        assert np.array_equal(scores.recall, expected.recall)


def test_unknown_training(tmp_path) -> None:
    """An unknown training is not taken for one without noise."""
    unknown = Study(make_run(tmp_path / "a"), {"b": make_run(tmp_path / "b", trained=None, sigma=0.25)})
    assert "training" not in by_key(unknown)
    both = Study(make_run(tmp_path / "c", trained=None), {"d": make_run(tmp_path / "d", trained=0.0)})
    assert line_names(both, "training") == ["noise in training unknown", "trained without noise"]


def test_equal_lines(hostile_study: Study) -> None:
    """Runs with the same value carry their names."""
    values = [line.value for line in by_key(hostile_study)["noise"].lines]
    assert values == ["σ = 0.25 (<img src=x onerror=alert(7)>)", "σ = 0.25 (<b>again</b>)", "σ = 0.5"]


def test_bands_kept(tmp_path) -> None:
    """A run keeps its bands on another grid."""
    banded = Study(make_run(tmp_path / "a", bands=0.9), {"low": make_run(tmp_path / "b", sigma=0.25)})
    low, own = by_key(banded)["noise"].lines
    assert low.curves["mean"].bands is None
    bands = own.curves["mean"].bands
    assert bands is not None
    assert bands.level == 0.9


def test_rules_family(threshold: Study, tmp_path) -> None:
    """Runs of the other rule are in a family of their own, with the ceiling."""
    study = Study(threshold.beside["ranked"], {"sets": threshold.main, "low": make_run(tmp_path, sigma=0.25)})
    families = by_key(study)
    assert list(families) == ["methods", "noise", "rules"]
    assert line_names(study, "rules") == ["top-k, k′ = 2, k = 5", "threshold, t = 0.3"]
    assert score_keys(families["methods"]) == ["precision", "recall", "f1"]
    assert score_keys(families["rules"]) == ["precision", "recall", "f1", "false_ceiling"]
    expected = threshold.main_curve("joint", "pooled").scores
    scores = families["rules"].lines[1].curves["pooled"].scores
    assert np.array_equal(scores.f1, expected.f1)
    assert np.array_equal(scores.false_ceiling, expected.false_ceiling)


def test_rules_differences(threshold: Study, tmp_path) -> None:
    """What differs besides the rule is in the name."""
    ranked = make_run(tmp_path / "a", methods=("paper",), sigma=0.25)
    name = line_names(Study(threshold.main, {"ranked": ranked}), "rules")[1]
    assert name == "top-k, k′ = 2, k = 5, σ = 0.25, paper (Theorem 1)"


def test_adaptive_and_fixed(tmp_path) -> None:
    """An adaptive run is not compared in sigma with a fixed one."""
    fixed, adaptive = make_run(tmp_path / "a"), make_run(tmp_path / "b", **ADAPTIVE)
    assert fixed.certificates.config.parameters == adaptive.certificates.config.parameters
    assert list(by_key(Study(adaptive, {"fixed": fixed}))) == ["methods", "runs"]
