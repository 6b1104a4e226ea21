"""Figures, tables and families of the threshold rule, of predicted labels and of adaptive draws."""

import csv
import math
import re
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.studies import ADAPTIVE, THRESHOLD, UNLABELLED, make_run
from tests.report.test_page import page_text, stored_data

from multiguard.errors import InvalidInputError
from multiguard.evaluate import ThresholdSetting
from multiguard.report import Study, draw_figures, write_tables
from multiguard.report.canvas import fixed_style
from multiguard.report.draws import stops
from multiguard.report.families import families
from multiguard.report.family import Family
from multiguard.report.figures import _draw_draws, _draw_family, _draw_labels
from multiguard.report.rounding import percent_value, round_up


def by_key(study: Study) -> dict[str, Family]:
    return {family.key: family for family in families(study)}


def keys(family: Family) -> list[str]:
    return [measure.key for measure in family.measures]


@given(st.floats(0, 1000), st.integers(0, 4))
def test_a_ceiling_is_rounded_up(value: float, decimals: int) -> None:
    exact = Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING)
    assert Decimal(round_up(value, decimals)) == exact


def test_families_of_the_threshold_rule(of_threshold: Study) -> None:
    found = by_key(of_threshold)
    assert list(found) == ["methods", "threshold", "n", "alpha", "rules"]
    assert [line.name for line in found["threshold"].lines] == ["t = 0.1", "t = 0.3", "t = 0.6"]
    assert [line.is_base for line in found["threshold"].lines] == [False, True, False]
    assert all(keys(family) == ["precision", "recall", "f1", "false_ceiling"] for family in found.values())


def test_runs_of_the_other_rule_stand_in_a_family_of_their_own(of_threshold: Study, tmp_path: Path) -> None:
    ranked = of_threshold.beside["ranked"]
    study = Study(ranked, {"sets": of_threshold.main, "low": make_run(tmp_path, sigma=0.25)})
    found = by_key(study)
    assert list(found) == ["methods", "sigma", "rules"]
    assert [line.value for line in found["rules"].lines] == ["top-k, k′ = 2, k = 5", "threshold, t = 0.3"]
    assert keys(found["methods"]) == ["precision", "recall", "f1"]
    assert keys(found["rules"]) == ["precision", "recall", "f1", "false_ceiling"]
    expected = of_threshold.main_curve("joint", "pooled").scores
    scores = found["rules"].lines[1].curves["pooled"].scores
    assert np.array_equal(scores.f1, expected.f1)
    assert np.array_equal(scores.false_ceiling, expected.false_ceiling)


def test_what_differs_besides_the_rule_is_in_the_name(of_threshold: Study, tmp_path: Path) -> None:
    ranked = make_run(tmp_path / "a", methods=("paper",), sigma=0.25)
    name = by_key(Study(of_threshold.main, {"ranked": ranked}))["rules"].lines[1].value
    assert name == "top-k, k′ = 2, k = 5, σ = 0.25, paper (Theorem 1)"


def test_an_adaptive_run_is_not_compared_in_sigma_with_a_fixed_one(tmp_path: Path) -> None:
    fixed, adaptive = make_run(tmp_path / "a"), make_run(tmp_path / "b", **ADAPTIVE)
    assert fixed.certificates.setting == adaptive.certificates.setting
    assert list(by_key(Study(adaptive, {"fixed": fixed}))) == ["methods", "runs"]


def test_predicted_labels_are_shown_by_what_stays(unlabelled: Study, tmp_path: Path) -> None:
    assert all(keys(family) == ["recall", "false_ceiling"] for family in families(unlabelled))
    ranked = Study(make_run(tmp_path, **UNLABELLED, swept=True))
    assert all(keys(family) == ["recall"] for family in families(ranked))
    assert "chose the labels anew" in by_key(ranked)["k"].note
    assert "chose the labels anew" not in by_key(ranked)["alpha"].note


def test_true_and_predicted_labels_are_not_mixed(of_threshold: Study, unlabelled: Study) -> None:
    with pytest.raises(InvalidInputError, match="certifies labels that pilot draws chose and the main run the true"):
        Study(of_threshold.main, {"deployed": unlabelled.main})


def test_unlabelled_runs_on_other_images_are_refused(unlabelled: Study, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="about other images"):
        Study(unlabelled.main, {"fewer": make_run(tmp_path, images=9, **UNLABELLED)})


def test_figures_of_every_kind(of_threshold: Study, unlabelled: Study, tmp_path: Path) -> None:
    drawn = {path.stem for path in draw_figures(of_threshold, tmp_path / "a")}
    assert drawn == {"methods", "threshold", "n", "alpha", "rules", "labels"}
    drawn = {path.stem for path in draw_figures(unlabelled, tmp_path / "b")}
    assert drawn == {"methods", "threshold", "alpha", "rules", "labels", "draws"}


def test_a_panel_of_ceilings_counts_labels(of_threshold: Study) -> None:
    with fixed_style():
        figure = _draw_family(of_threshold, by_key(of_threshold)["rules"])
    panel = figure.axes[-1]
    assert panel.get_title(loc="left") == "(d)  Wrong labels@R, at most"
    assert panel.get_ylabel() == "labels an image"
    ceiling = of_threshold.main_curve("joint", "mean").scores.false_ceiling
    assert np.array_equal(panel.lines[0].get_ydata(), ceiling)
    assert ceiling.max() > panel.get_ylim()[1] == 15
    assert any("axis of labels ends at 15" in text.get_text() for text in figure.texts)


def test_the_figure_of_labels_says_whose_they_are(unlabelled: Study) -> None:
    with fixed_style():
        words = "\n".join(text.get_text() for text in _draw_labels(unlabelled).texts)
    assert "for which pilot draws chose a label" in words
    assert "hold at once" in words


def test_the_figure_of_draws_counts_all_images(unlabelled: Study) -> None:
    with fixed_style():
        axes = _draw_draws(unlabelled, stops(unlabelled.main)).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [4, 4, 4]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["40", "70", "100"]
    assert stops(Study(unlabelled.main).main) == stops(unlabelled.main)


def test_a_fixed_n_has_no_looks(of_threshold: Study) -> None:
    assert stops(of_threshold.main) == []


def test_tables_hold_ceilings_in_full_and_rounded_up(of_threshold: Study, tmp_path: Path) -> None:
    write_tables(of_threshold, tmp_path)
    with (tmp_path / "methods.csv").open(encoding="utf-8", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["score"] == "wrong labels, at most")
    ceiling = of_threshold.main_curve("joint", "mean").scores
    grid = ceiling.radius.tolist()
    expected = [float(ceiling.false_ceiling[grid.index(float(head[2:]))]) for head in row if head.startswith("R=")]
    assert [float(cell) for head, cell in row.items() if head.startswith("R=")] == expected
    text = (tmp_path / "methods.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "wrong labels, at most" in line)
    shown = [Decimal(cell) for cell in re.findall(r"\d+\.\d\d", line)]
    assert shown == [Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_CEILING) for value in expected]
    assert "rounded up" in text
    assert "t = 0.3, n = 100" in text


def test_tables_of_predicted_labels_and_adaptive_draws(unlabelled: Study, tmp_path: Path) -> None:
    write_tables(unlabelled, tmp_path)
    text = "\n".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.md"))
    assert not re.search(r"precision|recall|F1|wrong", text)
    with (tmp_path / "draws.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["draws"], row["images"]) for row in csv.DictReader(file)] == [
            ("40", "4"),
            ("70", "4"),
            ("100", "4"),
        ]
    mean = unlabelled.main_curve("joint", "mean").mean_draws
    assert f"n up to 100 ({round(mean, 1):g} on average)" in text


def test_the_page_carries_the_ceilings_it_looks_at(of_threshold: Study, tmp_path: Path) -> None:
    data, certificates = stored_data(page_text(of_threshold, tmp_path / "report.html")), of_threshold.main.certificates
    for image in data["images"]:
        place = certificates.ids.index(image["id"])
        for method, stored in image["ceilings"].items():
            kept = [float(radius) for radius in stored]
            assert kept == certificates.false_radii[method][place].tolist()[: len(kept)]


def test_ceilings_end_where_one_reaches_the_farthest_radius(tmp_path: Path) -> None:
    main = make_run(tmp_path, images=3, **THRESHOLD)
    radii = ([-math.inf, 0.5, 1.5, 2.0], [2.0, 3.0], [-math.inf, 0.1])
    certificates = replace(main.certificates, false_radii={"joint": tuple(map(np.array, radii))})
    data = stored_data(page_text(Study(replace(main, certificates=certificates)), tmp_path / "report.html"))
    found = {image["id"]: image["ceilings"]["joint"] for image in data["images"]}
    assert data["grid"][-1] == 1.5
    assert list(map(found.get, certificates.ids)) == [["-inf", 0.5, 1.5], [2.0], ["-inf", 0.1]]


@pytest.mark.parametrize(
    ("kind", "words", "absent"),
    [
        ({}, ["among the 5 that the smoothed classifier returns"], ["threshold rule", "pilot", "looks were fixed"]),
        (THRESHOLD, ["at least a share <i>t</i> = 0.3", "others", "Ceilings are rounded up"], ["pilot", "Jia"]),
        (UNLABELLED, ["60 pilot draws", "Unconfirmed labels", "There is no ground truth here"], ["Jia"]),
        (ADAPTIVE, ["The looks were fixed beforehand and α is split over them"], ["pilot"]),
    ],
)
def test_the_promise_fits_the_kind(kind: dict, words: list[str], absent: list[str], tmp_path: Path) -> None:
    text = page_text(Study(make_run(tmp_path, **kind)), tmp_path / "report.html")
    promise = text.split('id="promise"')[1].split("</section>")[0]
    assert all(each in promise for each in words)
    assert not [each for each in absent if each in promise]


@pytest.mark.parametrize("kind", [{}, UNLABELLED])
def test_the_promise_says_where_only_one_claim_holds_at_a_time(kind: dict, tmp_path: Path) -> None:
    for methods in (("joint", "paper"), ("joint", "jia")):
        study = Study(make_run(tmp_path / methods[1], methods=methods, **kind))
        promise = page_text(study, tmp_path / "report.html").split('id="promise"')[1].split("</section>")[0]
        assert ("With the method of Jia et al. each" in promise) == ("jia" in methods)


def without_tags(study: Study, path: Path) -> str:
    return re.sub(r"<[^>]*>", "", page_text(study, path))


def test_images_for_which_nothing_is_predicted_are_left_out_and_said(tmp_path: Path) -> None:
    study = Study(make_run(tmp_path, **THRESHOLD, **UNLABELLED, setting=ThresholdSetting(0.95)))
    without = sum(not labels for labels in study.main.certificates.labels)
    assert 1 < without < 12
    words = f"{12 - without} images are counted; {without} are left out, because no label was predicted there."
    assert words in without_tags(study, tmp_path / "report.html")


def test_unconfirmed_labels_are_counted(unlabelled: Study, tmp_path: Path) -> None:
    """A label that is certified at R = 0 alone is confirmed."""
    certificates = unlabelled.main.certificates
    radii = tuple(np.where(np.arange(len(own)) == 0, 0.0, -math.inf) for own in certificates.label_radii)
    undecided = replace(unlabelled.main, certificates=replace(certificates, label_radii=radii))
    total = sum(len(labels) for labels in certificates.labels)
    confirmed = sum(len(labels) > 0 for labels in certificates.labels)
    text = without_tags(Study(undecided), tmp_path / "undecided.html")
    assert f"{total - confirmed} of {total} predicted labels are unconfirmed" in text


def test_numbers_are_there_before_any_script_has_run(of_threshold: Study, tmp_path: Path) -> None:
    text = page_text(of_threshold, tmp_path / "report.html")
    scores = of_threshold.main_curve("joint", "mean").scores
    place = scores.radius.tolist().index(0.5)
    ceiling = round_up(float(scores.false_ceiling[place]), 2)
    assert re.findall(r'data-score="false_ceiling">([^<]*)<', text) == [ceiling, ceiling]
    recall = percent_value(float(scores.recall[place]))
    assert set(re.findall(r'data-score="recall">([^<]*)<', text)) == {recall}
