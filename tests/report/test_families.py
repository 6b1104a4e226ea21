"""Which curves are shown together, and that they are the right ones."""

import pytest
from tests.report.studies import SWEPT, UNLABELLED, make_run

from multiguard.report import Study
from multiguard.report.families import Family


def by_key(study: Study) -> dict[str, Family]:
    return {family.key: family for family in study.families}


def score_keys(family: Family) -> list[str]:
    return [measure.key for measure in family.measures]


def test_family_order(study: Study) -> None:
    """Every family is there, in order."""
    assert list(by_key(study)) == ["methods", "k_prime", "k", "n", "alpha", "noise", "training", "runs"]


def test_methods_only(tmp_path) -> None:
    """A study without sweeps and other runs has its methods only."""
    assert list(by_key(Study(make_run(tmp_path)))) == ["methods"]


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


def test_caveat(study: Study) -> None:
    """Every choice of curves says what is not covered."""
    assert all("not covered" in family.note for family in study.families)


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
