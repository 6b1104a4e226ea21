"""Figures show the curves they are named after, and come out the same every time."""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image
from tests.report.studies import LABELS, make_run

from multiguard.report import Study, draw_figures
from multiguard.report.canvas import fixed_style
from multiguard.report.families import families
from multiguard.report.figures import _draw_family, _draw_labels

NAMES = ["methods", "k_prime", "k", "n", "alpha", "sigma", "training", "runs", "labels"]


@pytest.fixture(scope="module")
def drawn(study: Study, tmp_path_factory) -> list[Path]:
    return draw_figures(study, tmp_path_factory.mktemp("figures") / "new")


def test_every_figure_comes_in_three_formats(drawn: list[Path]) -> None:
    assert [path.name for path in drawn] == [f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "pdf")]
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in drawn)
    with Image.open(drawn[0]) as image:
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)


def test_only_what_has_data_is_drawn(tmp_path: Path) -> None:
    drawn = draw_figures(Study(make_run(tmp_path / "run")), tmp_path / "figures")
    assert {path.stem for path in drawn} == {"methods", "labels"}


def test_the_same_study_gives_the_same_bytes_and_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    study = Study(make_run(tmp_path / "run"))
    before = dict(matplotlib.rcParams)
    first, again = draw_figures(study, tmp_path / "first"), draw_figures(study, tmp_path / "again")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("key", ["methods", "k", "sigma"])
def test_a_panel_holds_the_curves_of_its_score(study: Study, key: str) -> None:
    family = next(family for family in families(study) if family.key == key)
    with fixed_style():
        figure = _draw_family(study, family)
    for axes, score in zip(figure.axes, ["precision", "recall", "f1"], strict=True):
        assert [line.get_label() for line in axes.lines] == [line.name for line in family.lines]
        for shown, line in zip(axes.lines, family.lines, strict=True):
            scores = line.curves["mean"].scores
            assert np.array_equal(shown.get_xdata(), scores.radius)
            assert np.array_equal(shown.get_ydata(), 100 * getattr(scores, score))
    assert any("not covered" in text.get_text() for text in figure.texts)


def test_bands_are_drawn_where_they_are(tmp_path: Path) -> None:
    banded = Study(make_run(tmp_path, bands=0.9))
    with fixed_style():
        figure = _draw_family(banded, families(banded)[0])
    assert all(len(axes.collections) == 1 for axes in figure.axes)
    assert any("90 % bootstrap" in text.get_text() for text in figure.texts)


def test_bars_are_the_shares_of_the_labels(study: Study) -> None:
    with fixed_style():
        axes = _draw_labels(study).axes[0]
    grid = study.main.curves[0].scores.radius.tolist()
    shares = {f"{label.label}  ({label.images})": 100 * label.certified for label in study.main.labels}
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert sorted(names) == sorted(shares)
    for bars, radius in zip(axes.containers, [0, 0.25, 0.5, 1.0], strict=True):
        assert [bar.get_width() for bar in bars] == [shares[name][grid.index(radius)] for name in names]


def test_hostile_names_are_drawn_as_they_are(hostile_study: Study, tmp_path: Path) -> None:
    with fixed_style():
        axes = _draw_labels(hostile_study).axes[0]
    shown = {text.get_text().rpartition("  (")[0] for text in axes.get_yticklabels()}
    assert {"a|b_c*d`e\\f$g$ #100% ~{x}^2", "<script>alert(1)</script>"} <= shown
    drawn = draw_figures(Study(hostile_study.main), tmp_path)
    assert not [path for path in drawn if path.suffix == ".svg" and "<script" in path.read_text(encoding="utf-8")]


def test_labels_in_any_script_are_drawn_without_a_complaint(tmp_path: Path, capfd, caplog) -> None:
    scripts = ("犬", "собака", "강아지", "いぬ", "كلب", "कुत्ता", "🐕", "\U0010fffd")
    names = (*scripts, *(f"label {i}" for i in range(len(scripts), LABELS)))
    study = Study(make_run(tmp_path / "run", label_names=names))
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        draw_figures(study, tmp_path / "figures")
    assert [str(complaint.message) for complaint in complaints] == []
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_a_font_that_is_installed_draws_what_the_first_one_lacks(monkeypatch) -> None:
    monkeypatch.setattr("multiguard.report.canvas._MORE_FONTS", ("No Such Font", "STIXGeneral"))
    with fixed_style():
        assert matplotlib.rcParams["font.family"] == ["DejaVu Sans", "STIXGeneral"]


def test_a_legend_of_long_names_stays_inside_the_figure(study: Study) -> None:
    family = next(family for family in families(study) if family.key == "runs")
    lines = [replace(line, name=f"{line.name}, adaptive, n up to 1000 (123.4 on average)") for line in family.lines * 2]
    with fixed_style():
        figure = _draw_family(study, replace(family, lines=tuple(lines)))
        figure.draw_without_rendering()
        assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_drawing_never_imports_pyplot_nor_torch(tmp_path: Path) -> None:
    make_run(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from multiguard.evaluate import read_certificates; from multiguard.report import Study, draw_figures\n"
        f"run = Path({str(tmp_path)!r})\n"
        "draw_figures(Study(read_certificates(run / 'certificates')), run / 'figures')\n"
        "assert not {'matplotlib.pyplot', 'torch', 'plotly'} & set(sys.modules), 'imported'\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
