"""CSV files give back the very names and numbers that were written."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evaluate.votes_cases import as_lists, assert_same_curves

from multiguard.certify import METHODS
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Bands, Curve, LabelScores, Scores
from multiguard.results import read_curves, write_curves
from multiguard.results.tables import parse_labels, write_labels

COLUMNS = (
    "method,k,k_prime,alpha,n,R,averaging,precision,recall,f1,images,without_labels,failed,sigma,"
    "rule,threshold,mean_draws,true_floor,false_ceiling"
)
BANDS = "level,precision_low,precision_high,recall_low,recall_high,f1_low,f1_high,resamples,seed"

share = st.floats(0, 1)
positive = st.floats(0, exclude_min=True, allow_infinity=False)
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


@st.composite
def any_curve(draw) -> Curve:
    size = draw(st.integers(1, 4))

    def column(values=share):
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    count = st.integers(1, 10**6)
    alpha, draws = draw(st.floats(1e-200, 0.99)), draw(count)
    top_k = CertifyConfig(TopK(draw(count), draw(count)), alpha, draws)
    setting = draw(st.sampled_from([top_k, CertifyConfig(Threshold(draw(st.floats(1e-300, 1 - 1e-16))), alpha, draws)]))
    radius = np.array(draw(st.lists(st.floats(0, 1e300), min_size=size, max_size=size, unique=True)))
    counts = [column(st.floats(0, 1e6)) for _ in range(2)]
    scores = Scores(radius, column(), column(), column(), *counts, draw(count), draw(st.integers(0, 9)))
    pairs = [(column(), column()) for _ in range(3)]
    bands = draw(st.sampled_from([None, Bands(draw(st.floats(0.01, 0.99)), draw(count), draw(count), *pairs)]))
    known = METHODS if setting is top_k else ("joint", "independent")
    method, averaging = draw(st.sampled_from(known)), draw(st.sampled_from(["mean", "pooled"]))
    return Curve(
        method, setting, draw(positive), averaging, scores, draw(st.floats(1, 1e6)), draw(st.integers(0, 9)), bands
    )


def key(curve: Curve) -> tuple:
    return curve.method, curve.setting, curve.sigma, curve.averaging


@quick
@given(st.lists(any_curve(), max_size=5, unique_by=key))
def test_curves_come_back(tmp_path, curves) -> None:
    path = tmp_path / "curves.csv"
    write_curves(path, curves)
    assert_same_curves(read_curves(path), curves)
    header = path.read_text().splitlines()[0]
    assert header == (f"{COLUMNS},{BANDS}" if any(curve.bands for curve in curves) else COLUMNS)


def one_curve(**changes) -> Curve:
    half = np.array([0.5, 0.25])
    fields = {"method": "joint", "setting": CertifyConfig(TopK(3, 2), 0.001, 100), "sigma": 0.5, "averaging": "mean"}
    scores = Scores(np.array([0.0, 0.1 + 0.2]), half, half / 3, half / 7, 3 * half, half, 8, 3)
    return Curve(**{**fields, "scores": scores, "mean_draws": 100.0, "failed": 2, **changes})


def test_the_rows_are_plain(tmp_path) -> None:
    write_curves(tmp_path / "curves.csv", [one_curve()])
    lines = (tmp_path / "curves.csv").read_text().split("\n")
    assert (
        lines[1]
        == "joint,3,2,0.001,100,0.0,mean,0.5,0.16666666666666666,0.07142857142857142,8,3,2,0.5,top-k,,100.0,1.5,0.5"
    )
    assert lines[2].split(",")[5] == "0.30000000000000004"
    assert lines[3:] == [""]


def test_the_rows_of_the_threshold_rule_have_no_k(tmp_path) -> None:
    write_curves(
        tmp_path / "curves.csv", [one_curve(setting=CertifyConfig(Threshold(0.3), 0.001, 100), mean_draws=62.5)]
    )
    line = (tmp_path / "curves.csv").read_text().split("\n")[1]
    assert line.startswith("joint,,,0.001,100,0.0,mean,0.5,")
    assert line.endswith(",8,3,2,0.5,threshold,0.3,62.5,1.5,0.5")


def test_one_curve_twice_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="two curves"):
        write_curves(tmp_path / "curves.csv", [one_curve(), one_curve(averaging="pooled"), one_curve()])
    assert list(tmp_path.iterdir()) == []


def test_a_curve_without_its_number_of_draws_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="draws"):
        write_curves(tmp_path / "curves.csv", [one_curve(setting=CertifyConfig(TopK(3, 2)))])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("joint", "jont"),
        ("mean", "median"),
        ("0.30000000000000004", "a little"),
        (",1.5,0.5\n", ",1.5\n"),
        (",1.5,0.5\n", ",1.5,0.5,1\n"),
        ("top-k,,", "threshold,,"),
        ("top-k,,", "threshold,0.5,"),
        ("top-k,,", "top-k,0.5,"),
        ("top-k,,", "top,,"),
        ("top-k,,100.0", "top-k,,many"),
        ("8,3,2,0.5", "8,3,some,0.5"),
        ("averaging", "average"),
        ("joint", '"joint'),
        ("joint", '"jo"int'),
        (COLUMNS, ""),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, old, new) -> None:
    path = tmp_path / "curves.csv"
    write_curves(path, [one_curve()])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=r"curves\.csv"):
        read_curves(path)


def test_what_is_no_file_or_no_text_is_refused(tmp_path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    for name in ("bytes.csv", "absent.csv", "."):
        with pytest.raises(DataError, match="cannot be read"):
            read_curves(tmp_path / name)


ODD = [
    "a,b",
    'a "b"',
    "a\nb",
    "a\rb",
    "\r",
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\tx",
    "'=1",
    "''=1",
    "'",
    "",
    " a ",
    "'tis",
    "é鳥",
    "\x00",
]


@quick
@given(st.lists(st.one_of(st.sampled_from(ODD), st.text(st.characters(codec="utf-8"))), unique=True, max_size=8))
def test_label_names_come_back_and_are_no_formulas(tmp_path: Path, names) -> None:
    radius, certified = np.array([0.0, 0.1, 2.5e-7]), np.array([1.0, 1 / 3, 0.0])
    labels = [LabelScores(name, 3 + i, radius, certified, 5 * i) for i, name in enumerate(names)]
    path = tmp_path / "labels.csv"
    write_labels(path, labels)
    assert as_lists(parse_labels(path.read_bytes(), path)) == as_lists(labels)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["label", "R", "images", "certified", "failed"]
    assert len(rows) == 1 + 3 * len(names)
    assert not any(row[0][:1] in tuple("=+-@\t\r") for row in rows[1:] if row[0])


def test_an_apostrophe_before_a_formula_and_nowhere_else(tmp_path) -> None:
    names = ["=SUM(A1)", "cat", "'tis"]
    write_labels(tmp_path / "labels.csv", [LabelScores(n, 1, np.zeros(1), np.ones(1), 0) for n in names])
    cells = [line.split(",")[0] for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    assert cells == ['"\'=SUM(A1)"', '"cat"', '"\'tis"']
