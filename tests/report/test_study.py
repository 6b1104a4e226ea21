"""A study takes comparable runs only, groups the right curves at the same radii, and counts every failed image."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.evaluate.votes_cases import stored_votes
from tests.report.studies import ADAPTIVE, SWEPT, UNLABELLED, NoiseImages, by_key, figure_text, line_names, make_run

from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, certify_votes
from multiguard.report import Study, write_page, write_tables
from multiguard.report.figures import family_figure
from multiguard.report.study import Family, _training_words

FAILED = {2: "<script>alert(9)</script> & {{ 7 * 7 }}", 6: "the file is empty"}
SENTENCE = "2 of 12 images could not be voted on and are left out."


def score_keys(family: Family) -> list[str]:
    return [measure.key for measure in family.measures]


def test_incomparable_runs(tmp_path, threshold: Study, unlabelled: Study) -> None:
    """A run on other images, of another config, an adaptive one, and one of predicted labels: no study."""
    main, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", images=11)
    wider = make_run(tmp_path / "c", config=CertifyConfig(k=8, k_prime=2))
    for run in (other, wider, make_run(tmp_path / "d", **ADAPTIVE)):
        with pytest.raises(InvalidInputError, match="'other' is about other images or labels"):
            Study(main, {"other": run})
    with pytest.raises(InvalidInputError, match=r"different labels .*: this run the true labels, deployed labels that"):
        Study(threshold.main, {"deployed": unlabelled.main})


def test_price_of_labels_without_a_hit(tmp_path) -> None:
    """A true label that no draw returned does not count as found; of the k labels those that are not true are false."""
    votes = stored_votes(tmp_path / "votes", [np.tile([[3, 5]], (100, 1))] * 2, [[3, 0], [5]], labels=8)
    found = Study(certify_votes(CertifyConfig(4, 2), votes)).clean_scores["smoothed"]
    assert (found["mean"].recall, found["mean"].precision) == (0.75, 0.25)
    assert (found["pooled"].recall, found["pooled"].precision) == (2 / 3, 2 / 8)


def test_unusable_curves(tmp_path) -> None:
    """Curves at different radii are refused, and a missing curve is named."""
    main, coarse = make_run(tmp_path / "a"), make_run(tmp_path / "b", step=0.25)
    with pytest.raises(InvalidInputError, match="same radii"):
        Study(replace(main, curves=[*main.curves, *coarse.curves]))
    pooled = [curve for curve in main.curves if curve.averaging == "pooled"]
    with pytest.raises(InvalidInputError, match=r"no curve of the method joint \(mean\)"):
        _ = Study(replace(main, curves=pooled)).families


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


def test_families_by_rule(threshold: Study, unlabelled: Study, tmp_path) -> None:
    """The threshold rule sweeps t and has a ceiling; predicted labels have neither precision nor F1."""
    families = by_key(threshold)
    assert list(families) == ["methods", "threshold", "n", "alpha"]
    assert [line.name for line in families["threshold"].lines] == ["t = 0.1", "t = 0.3", "t = 0.6"]
    assert [line.is_base for line in families["threshold"].lines] == [False, True, False]
    assert all(score_keys(family) == ["precision", "recall", "f1", "false_ceiling"] for family in families.values())
    assert all(score_keys(family) == ["recall", "false_ceiling"] for family in unlabelled.families)
    families = by_key(Study(make_run(tmp_path, **UNLABELLED, swept=True)))
    assert "chose the labels again" in families["k"].note
    assert "chose the labels again" not in families["alpha"].note


def test_runs_beside(study: Study, hostile_study: Study, tmp_path) -> None:
    """Runs are grouped by the noise of their votes and of their training; an unknown training is said to be unknown."""
    assert line_names(study, "noise") == ["σ = 0.25", "σ = 0.5"]
    assert line_names(study, "training") == ["trained with σ = 0.5", "trained without noise"]
    assert line_names(hostile_study, "noise") == [
        *("σ = 0.25 (<img src=x onerror=alert(7)>)", "σ = 0.25 (<b>again</b>)", "σ = 0.5")
    ]
    unknown = Study(make_run(tmp_path / "a"), {"b": make_run(tmp_path / "b", trained=None, sigma=0.25)})
    assert "training" not in by_key(unknown)
    both = Study(make_run(tmp_path / "c", trained=None), {"d": make_run(tmp_path / "d", trained=0.0)})
    assert line_names(both, "training") == ["noise in training unknown", "trained without noise"]


def test_common_radii(study: Study, tmp_path) -> None:
    """Runs are compared at the radii of all of them, by their own certificates, and keep their bands."""
    runs = {True: study.main, False: study.others["low noise"]}
    grid = sorted({float(radius) for run in runs.values() for radius in run.curves[0].scores.radius})
    for line in by_key(study)["noise"].lines:
        scores = line.curves["pooled"].scores
        assert scores.radius.tolist() == grid
        expected = runs[line.is_base].curve(grid, method="joint", averaging="pooled").scores
        assert np.array_equal(scores.recall, expected.recall)
    banded = Study(make_run(tmp_path / "a", bands=0.9), {"low": make_run(tmp_path / "b", sigma=0.25)})
    low, own = (line.curves["mean"].bands for line in by_key(banded)["noise"].lines)
    assert (low, own.level) == (None, 0.9)


@pytest.fixture(scope="module")
def failed(tmp_path_factory) -> Study:
    home = tmp_path_factory.mktemp("failed")
    main = make_run(home / "main", methods=("joint", "paper"), swept=True, failed=FAILED, **ADAPTIVE)
    others = {
        "low": make_run(home / "low", sigma=0.25, failed={3: "torn"}, **ADAPTIVE),
        "same": make_run(home / "same", sigma=1.0, failed=FAILED, **ADAPTIVE),
        "clean": make_run(home / "clean", trained=0.0, **ADAPTIVE),
    }
    return Study(main, others, "Some failed")


def test_tables_count_failures(failed: Study, tmp_path) -> None:
    """Every table counts the failed images of its runs."""
    names = {path.stem for path in write_tables(failed, tmp_path)}
    assert names >= {"methods", "k", "alpha", "noise", "training", "labels"}
    for name in names:
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        counts = {"σ = 0.25": "1", "trained without noise": "0"}
        assert [row["failed"] for row in rows] == [counts.get(row.get(name, ""), "2") for row in rows]
        text = (tmp_path / f"{name}.tex").read_text(encoding="utf-8")
        assert SENTENCE in text or "2 that could not be voted on are left out." in text
    assert "Over 7 images; 3 without labels and 2 that could not be voted on" in (tmp_path / "k.tex").read_text()


def test_figures_count_failures(failed: Study) -> None:
    """Every figure counts the failed images, and a comparison names the runs that failed on other images."""
    for family in failed.families:
        words = figure_text(family_figure(failed, family))
        assert "3 without labels and 2 that could not be voted on left out" in words
    notes = {family.key: family.note for family in failed.families}
    assert "σ = 0.25: 1 of 12 images could not be voted on and is left out." in notes["noise"]
    assert "1.0: " not in notes["noise"]
    assert "trained without noise: no image failed." in notes["training"]


def test_page_lists_failures(failed: Study, study: Study, tmp_path) -> None:
    """The page counts the failed images at the top and lists them, escaped; without failures it mentions none."""
    write_page(failed, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    assert words.index(SENTENCE) < words.index("Sweeps The same votes") < words.index("the file is empty")
    assert "7 images are averaged; 3 are left out" in words
    assert "&lt;script&gt;alert(9)&lt;/script&gt; &amp; {{ 7 * 7 }}" in text
    assert "<script>alert(9)" not in text
    assert "The averages are over the others and might be lower with them." in words
    write_page(study, tmp_path / "report.html")
    assert "voted on" not in (tmp_path / "report.html").read_text(encoding="utf-8").split('id="data"')[0]


def test_replaced_images(tmp_path) -> None:
    """An image that was replaced is not shown as the certified one."""
    images = NoiseImages([f"image-{index}" for index in range(12)], side=8)
    true = {index: image_hash(images[index].image) for index in range(1, 12)}
    run = make_run(tmp_path / "run", hashes={**true, 3: "0" * 64, 5: "1" * 64})
    images.ids = known = list(run.certificates.ids)
    assert write_page(Study(run), tmp_path / "report.html", images=images) == 2
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert {each["id"] for each in data["images"] if each["thumbnail"] is None} == {known[3], known[5]}
    assert "The pixels of 2 have changed since the votes" in text
    images.ids = known[:7]
    assert write_page(Study(run), tmp_path / "report.html", images=images) == 2
    text = re.sub(r"\s+", " ", (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "5 could not be found or read" in text


def test_trained_range():
    """A network that was trained for a range of sigma is named by both ends."""
    assert _training_words("gaussian:0.12 to 2") == "trained with σ = 0.12 to 2"
