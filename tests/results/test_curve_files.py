"""The CSV files hold exactly the names and numbers that were written."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evaluate.votes_cases import assert_same_curves
from tests.report.test_table_formats import from_cell

from multiguard.certify import Threshold, TopK
from multiguard.certify.noise import BandAblation, Gaussian, PixelAblation, Uniform
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Bands, CertifyConfig, Curve, LabelScores, Scores
from multiguard.results import read_curves, write_curves
from multiguard.results.curve_files import write_labels

COLUMNS = (
    "method,k,k_prime,alpha,n,R,averaging,precision,recall,f1,images,without_labels,failed,noise,attacker,"
    "rule,threshold,mean_draws,true_floor,false_ceiling"
)
BANDS = "level,precision_low,precision_high,recall_low,recall_high,f1_low,f1_high"

fraction = st.floats(0, 1)
positive = st.floats(0, exclude_min=True, allow_infinity=False)
ablated = st.sampled_from([PixelAblation(45, 1024), BandAblation(4, 32)])
noises = st.one_of(positive.map(Gaussian), st.floats(0, 1e300, exclude_min=True).map(Uniform), ablated)
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)


@st.composite
def any_curve(draw) -> Curve:
    size = draw(st.integers(1, 4))

    def column(values=fraction):
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    count = st.integers(1, 10**6)
    alpha, draws = draw(st.floats(1e-200, 0.99)), draw(count)
    rules = [TopK(draw(count), draw(count)), Threshold(draw(st.floats(1e-300, 1 - 1e-16)))]
    config = CertifyConfig(draw(st.sampled_from(rules)), alpha, draws)
    noise = draw(noises)
    radii = st.integers(0, 2**53).map(float) if noise.whole else st.floats(0, 1e300)
    radius = np.array(draw(st.lists(radii, min_size=size, max_size=size, unique=True)))
    counts = [column(st.floats(0, 1e6)) for _ in range(2)]
    scores = Scores(radius, column(), column(), column(), *counts, draw(count), draw(st.integers(0, 9)))
    pairs = [(column(), column()) for _ in range(3)]
    bands = draw(st.sampled_from([None, Bands(draw(st.floats(0.01, 0.99)), *pairs)]))
    known = [method for method in config.rule.methods if (method == "enumerated") == isinstance(noise, BandAblation)]
    method, averaging = draw(st.sampled_from(known)), draw(st.sampled_from(["mean", "pooled"]))
    return Curve(method, config, noise, averaging, scores, draw(st.floats(1, 1e6)), draw(st.integers(0, 9)), bands)


def key(curve: Curve) -> tuple:
    return curve.method, curve.config, curve.noise, curve.averaging


@quick
@given(st.lists(any_curve(), max_size=5, unique_by=key))
def test_round_trip(tmp_path, curves) -> None:
    """Curves of any numbers read back exactly."""
    path = tmp_path / "curves.csv"
    write_curves(path, curves)
    assert_same_curves(read_curves(path), curves)
    header = path.read_text().splitlines()[0]
    assert header == (f"{COLUMNS},{BANDS}" if any(curve.bands for curve in curves) else COLUMNS)


def one_curve(**changes) -> Curve:
    half = np.array([0.5, 0.25])
    fields = {
        "method": "joint",
        "config": CertifyConfig(TopK(3, 2), 0.001, 100),
        "noise": Gaussian(0.5),
        "averaging": "mean",
    }
    scores = Scores(np.array([0.0, 0.1 + 0.2]), half, half / 3, half / 7, 3 * half, half, 8, 3)
    return Curve(**{**fields, "scores": scores, "mean_draws": 100.0, "failed": 2, **changes})


def test_plain_rows(tmp_path) -> None:
    """Numbers are written in full precision."""
    write_curves(tmp_path / "curves.csv", [one_curve()])
    lines = (tmp_path / "curves.csv").read_text().split("\n")
    scores = "0.5,0.16666666666666666,0.07142857142857142"
    assert lines[1] == (f"joint,3,2,0.001,100,0.0,mean,{scores},8,3,2,gaussian:0.5,l2-norm,top-k,,100.0,1.5,0.5")
    assert lines[2].split(",")[5] == "0.30000000000000004"
    assert lines[3:] == [""]


def test_threshold_rows(tmp_path) -> None:
    """Rows of the threshold rule have no k and k'."""
    write_curves(
        tmp_path / "curves.csv", [one_curve(config=CertifyConfig(Threshold(0.3), 0.001, 100), mean_draws=62.5)]
    )
    line = (tmp_path / "curves.csv").read_text().split("\n")[1]
    assert line.startswith("joint,,,0.001,100,0.0,mean,0.5,")
    assert line.endswith(",8,3,2,gaussian:0.5,l2-norm,threshold,0.3,62.5,1.5,0.5")


def test_repeated_curve(tmp_path) -> None:
    """The same curve twice is refused."""
    with pytest.raises(InvalidInputError, match="two curves have"):
        write_curves(tmp_path / "curves.csv", [one_curve(), one_curve(averaging="pooled"), one_curve()])
    assert list(tmp_path.iterdir()) == []


def test_many_curves(tmp_path, monkeypatch) -> None:
    """A repeated curve is found in linear time: a forged file may hold very many."""
    compared, equal = [], CertifyConfig.__eq__
    monkeypatch.setattr(CertifyConfig, "__eq__", lambda one, other: compared.append(one) or equal(one, other))
    curves = [one_curve(config=CertifyConfig(TopK(3, 2), 0.001, n)) for n in (*range(1, 301), 300)]
    with pytest.raises(InvalidInputError, match=r"two curves have .*n=300"):
        write_curves(tmp_path / "curves.csv", curves)
    assert len(compared) < 10 * len(curves)


def test_missing_n(tmp_path) -> None:
    """A curve whose config does not name n is refused."""
    with pytest.raises(InvalidInputError, match="n is None"):
        write_curves(tmp_path / "curves.csv", [one_curve(config=CertifyConfig(TopK(3, 2)))])


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
        ("8,3,2,gauss", "8,3,some,gauss"),
        ("gaussian:0.5", "gaussian:-1"),
        ("l2-norm", "l1-norm"),
        ("averaging", "average"),
        ("joint", '"joint'),
        ("joint", '"jo"int'),
        (COLUMNS, ""),
    ],
)
def test_damaged_file(tmp_path, old, new) -> None:
    """A damaged file is refused with its name, in one line."""
    path = tmp_path / "curves.csv"
    write_curves(path, [one_curve()])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=r"curves\.csv") as refusal:
        read_curves(path)
    assert "\n" not in str(refusal.value)


def test_unreadable_file(tmp_path) -> None:
    """A missing file, a folder and bytes that are not text are refused."""
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
def test_label_names(tmp_path: Path, names) -> None:
    """Any CSV reader finds the names and numbers, and no name is a formula."""
    radius, certified = np.array([0.0, 0.1, 2.5e-7]), np.array([1.0, 1 / 3, 0.0])
    labels = [LabelScores(name, 3 + i, radius, certified, 5 * i) for i, name in enumerate(names)]
    write_labels(tmp_path / "labels.csv", labels, BandAblation(4, 32))
    with (tmp_path / "labels.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "R", "images", "certified", "failed", "noise", "attacker"]
    expected = [
        (one.label, r, one.images, c, one.failed) for one in labels for r, c in zip(radius, certified, strict=True)
    ]
    assert [(from_cell(a), float(b), int(c), float(d), int(e)) for a, b, c, d, e, *_ in rows] == expected
    assert all(row[5:] == ["band:4/32", "patch"] for row in rows)
    assert not any(row[0][:1] in tuple("=+-@\t\r") for row in rows if row[0])


def test_apostrophe_before_formulas(tmp_path) -> None:
    """An apostrophe stands before formulas and nowhere else."""
    names = ["=SUM(A1)", "cat", "'tis"]
    write_labels(tmp_path / "labels.csv", [LabelScores(n, 1, np.zeros(1), np.ones(1), 0) for n in names], Gaussian(1))
    cells = [line.split(",")[0] for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    assert cells == ['"\'=SUM(A1)"', '"cat"', '"\'tis"']
