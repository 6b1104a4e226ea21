"""A study takes comparable runs only, and computes each thing once."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tests.evaluate.votes_cases import stored_votes
from tests.report.studies import UNLABELLED, make_run

from multiguard.errors import InvalidInputError
from multiguard.evaluate import (
    CertifyConfig,
    certify_votes,
    curves,
    label_scores,
)
from multiguard.report import Study, draw_figures, write_page, write_tables
from multiguard.report.families import FamilyKey


def test_other_images(tmp_path, unlabelled: Study) -> None:
    """Runs on other images are refused, with or without labels."""
    main, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", images=11)
    with pytest.raises(InvalidInputError, match="'fewer' is about other images"):
        Study(main, {"fewer": other})
    with pytest.raises(InvalidInputError, match="about other images"):
        Study(unlabelled.main, {"fewer": make_run(tmp_path / "c", images=9, **UNLABELLED)})


def test_true_and_predicted_labels(threshold: Study, unlabelled: Study) -> None:
    """Runs of true and of predicted labels are not mixed."""
    with pytest.raises(InvalidInputError, match=r"different labels .*: this run the true labels, deployed labels that"):
        Study(threshold.main, {"deployed": unlabelled.main})


def test_price_of_labels_without_a_hit(tmp_path) -> None:
    """A true label that no draw returned does not count as found; of the k labels those that are not true are false."""
    votes = stored_votes(tmp_path / "votes", [np.tile([[3, 5]], (100, 1))] * 2, [[3, 0], [5]], labels=8)
    found = Study(certify_votes(CertifyConfig(4, 2), votes)).clean_scores["smoothed"]
    assert (found["mean"].recall, found["mean"].precision) == (0.75, 0.25)
    assert (found["pooled"].recall, found["pooled"].precision) == (2 / 3, 2 / 8)


def test_mixed_radii(tmp_path) -> None:
    """Curves at different radii are refused."""
    main, coarse = make_run(tmp_path / "a"), make_run(tmp_path / "b", step=0.25)
    with pytest.raises(InvalidInputError, match="same radii"):
        Study(replace(main, curves=[*main.curves, *coarse.curves]))


def test_missing_curve(tmp_path) -> None:
    """A missing curve is named."""
    main = make_run(tmp_path)
    pooled = [curve for curve in main.curves if curve.averaging == "pooled"]
    with pytest.raises(InvalidInputError, match=r"no curve of the method joint \(mean\)"):
        _ = Study(replace(main, curves=pooled)).families


def test_stops(threshold: Study, unlabelled: Study) -> None:
    """An adaptive run counts all of its images by their draws; a fixed n has no stops."""
    assert unlabelled.stops == {40: 4, 70: 4, 100: 4}
    assert threshold.stops == {}


@pytest.mark.parametrize("which", ["study", "threshold", "unlabelled"])
def test_file_names(which: str, request, tmp_path) -> None:
    """Every file is named after a family, `labels` or `draws`, which is how an earlier report is recognised."""
    written = write_tables(request.getfixturevalue(which), tmp_path)
    assert {path.stem for path in written} <= {*get_args(FamilyKey), "labels", "draws"}


def test_computed_once(study: Study, tmp_path: Path, monkeypatch) -> None:
    """Figures, tables and page share the curves of other runs and the scores of labels: each is computed once."""
    study, calls = Study(study.main, study.beside), Counter()

    def counted(function, name):
        def call(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr("multiguard.report.families.curves", counted(curves, "curves"))
    monkeypatch.setattr("multiguard.report.study.label_scores", counted(label_scores, "label_scores"))
    draw_figures(study, tmp_path / "figures", formats=[])
    write_tables(study, tmp_path / "tables")
    write_page(study, tmp_path / "report.html")
    assert calls == {"curves": 2, "label_scores": 1}  # the two sigmas have different radii; all other runs share them
