"""Which curves stand together, and that they are the right ones."""

from dataclasses import replace

import numpy as np
import pytest
from tests.report.studies import ADAPTIVE, SWEPT, make_run

from multiguard.errors import InvalidInputError
from multiguard.evaluate import Setting, set_scores
from multiguard.pipeline.folders import REPORT_NAMES
from multiguard.report import Study, write_tables
from multiguard.report.families import families
from multiguard.report.strokes import strokes_apart, strokes_in_order


def by_key(study: Study) -> dict:
    return {family.key: family for family in families(study)}


def test_every_family_is_there_in_order(study: Study) -> None:
    assert list(by_key(study)) == ["methods", "k_prime", "k", "n", "alpha", "sigma", "training", "runs"]


@pytest.mark.parametrize("which", ["study", "of_threshold", "unlabelled"])
def test_what_a_report_writes_is_known_by_name(which: str, request, tmp_path) -> None:
    """What an earlier report has left is found by these names."""
    written = write_tables(request.getfixturevalue(which), tmp_path)
    assert {path.stem for path in written} <= set(REPORT_NAMES)


def test_a_study_without_sweeps_or_other_runs_has_its_methods_only(tmp_path) -> None:
    assert list(by_key(Study(make_run(tmp_path)))) == ["methods"]


@pytest.mark.parametrize(("key", "field"), [("k_prime", "k_prime"), ("k", "k"), ("n", "draws"), ("alpha", "alpha")])
def test_a_sweep_moves_one_parameter_of_the_first_method(study: Study, key: str, field: str) -> None:
    lines = by_key(study)[key].lines
    moved = [getattr(line.curves["mean"].setting, field) for line in lines]
    assert moved == sorted({*SWEPT[key], getattr(study.setting, field)})
    assert [line.is_base for line in lines] == [value == getattr(study.setting, field) for value in moved]
    for line in lines:
        assert set(line.curves) == {"mean", "pooled"}
        for averaging, curve in line.curves.items():
            assert (curve.method, curve.averaging) == ("joint", averaging)
            assert replace(curve.setting, **{field: getattr(study.setting, field)}) == study.setting


def test_runs_are_told_apart_by_their_origin(study: Study) -> None:
    found = by_key(study)
    assert [line.name for line in found["sigma"].lines] == ["σ = 0.25", "σ = 0.5"]
    assert [line.name for line in found["training"].lines] == ["trained with noise 0.5", "trained without noise"]
    assert [line.name for line in found["runs"].lines] == ["this run: k = 5", "more labels: k = 8"]


def test_other_runs_say_what_they_differ_in(tmp_path) -> None:
    main = make_run(tmp_path / "main")
    adaptive = make_run(tmp_path / "adaptive", **ADAPTIVE)
    louder = make_run(tmp_path / "louder", sigma=1.0, trained=None, setting=Setting(k=8, k_prime=2))
    lines = by_key(Study(main, {"early stops": adaptive, "louder": louder}))["runs"].lines
    assert [line.name for line in lines] == [
        "this run: k = 5, n = 100, σ = 0.5, trained with noise 0.5",
        "early stops: adaptive, n up to 100 (70 on average)",
        "louder: k = 8, σ = 1, noise in training unknown",
    ]


def test_runs_are_asked_at_all_their_radii(study: Study) -> None:
    grids = [run.curves[0].scores.radius for run in (study.main, study.beside["low noise"])]
    for line in by_key(study)["sigma"].lines:
        run = study.main if line.is_base else study.beside["low noise"]
        scores = line.curves["pooled"].scores
        assert scores.radius.tolist() == sorted({*grids[0].tolist(), *grids[1].tolist()})
        true = [len(labels) for labels in run.certificates.labels]
        radii = run.certificates.radii["joint"]
        expected = set_scores(radii, num_true=true, k=5, radius=scores.radius, averaging="pooled")
        assert np.array_equal(scores.recall, expected.recall)


def test_an_unknown_training_is_not_taken_for_one_without_noise(tmp_path) -> None:
    unknown = Study(make_run(tmp_path / "a"), {"b": make_run(tmp_path / "b", trained=None, sigma=0.25)})
    assert "training" not in by_key(unknown)
    both = Study(make_run(tmp_path / "c", trained=None), {"d": make_run(tmp_path / "d", trained=0.0)})
    assert [line.name for line in by_key(both)["training"].lines] == [
        "noise in training unknown",
        "trained without noise",
    ]


def test_runs_that_read_alike_carry_their_names(hostile_study: Study) -> None:
    names = [line.value for line in by_key(hostile_study)["sigma"].lines]
    assert names == ["0.25 (<img src=x onerror=alert(7)>)", "0.25 (<b>again</b>)", "0.5"]


def test_bands_go_with_a_run_to_another_grid(tmp_path) -> None:
    banded = Study(make_run(tmp_path / "a", bands=0.9), {"low": make_run(tmp_path / "b", sigma=0.25)})
    low, own = by_key(banded)["sigma"].lines
    assert low.curves["mean"].bands is None
    assert own.curves["mean"].bands is not None
    assert (own.curves["mean"].bands.level, own.curves["mean"].bands.resamples) == (0.9, 50)


def test_every_family_of_choices_says_what_is_not_covered(study: Study) -> None:
    assert all("not covered" in family.note for family in families(study))


def test_other_images_are_refused(tmp_path) -> None:
    main, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", images=11)
    with pytest.raises(InvalidInputError, match="'fewer' is about other images"):
        Study(main, {"fewer": other})


def test_curves_at_different_radii_are_refused(tmp_path) -> None:
    main = make_run(tmp_path / "a")
    coarse = make_run(tmp_path / "b", step=0.25)
    with pytest.raises(InvalidInputError, match="same radii"):
        Study(replace(main, curves=[*main.curves, *coarse.curves]))


def test_a_missing_curve_is_said(tmp_path) -> None:
    main = make_run(tmp_path)
    pooled = [curve for curve in main.curves if curve.averaging == "pooled"]
    with pytest.raises(InvalidInputError, match=r"no curve of the method joint \(mean\)"):
        families(Study(replace(main, curves=pooled)))


@pytest.mark.parametrize("count", range(1, 9))
def test_lines_differ_without_their_colours(count: int) -> None:
    for drawn in (strokes_apart(count), *(strokes_in_order(count, base) for base in range(count))):
        assert len({stroke.dash for stroke in drawn}) == len({stroke.marker for stroke in drawn}) == count
    assert all(strokes_in_order(count, base)[base].dash == () for base in range(count))
