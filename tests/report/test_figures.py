"""Figures show the curves they are named after, and come out the same every time."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.cbook import STEP_LOOKUP_MAP
from PIL import Image
from tests.evaluate.votes_cases import set_radii
from tests.report.studies import by_key, figure_text, make_run

from multiguard.evaluate import set_scores
from multiguard.report import Study, draw_figures
from multiguard.report.figures import (
    distinct_strokes,
    draw_line,
    family_figure,
    fixed_style,
    new_figure,
    ordered_strokes,
    save,
)

NAMES = ["methods", "k_prime", "k", "n", "alpha", "noise", "training"]


def test_formats_and_bytes(tmp_path: Path) -> None:
    """PNG, SVG and PDF are the default, the bytes are stable, and matplotlib's settings are restored."""
    study = Study(make_run(tmp_path / "run"))
    before = dict(matplotlib.rcParams)
    first, again = draw_figures(study, tmp_path / "new" / "first"), draw_figures(study, tmp_path / "again")
    assert [path.name for path in first] == [f"{n}.{kind}" for n in ("methods",) for kind in ("png", "svg", "pdf")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert dict(matplotlib.rcParams) == before
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in first)
    with Image.open(first[0]) as image:
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)


def test_figures_of_each_kind(study: Study, threshold: Study, unlabelled: Study, tmp_path: Path, monkeypatch) -> None:
    """What has data is drawn, in the formats given."""
    monkeypatch.setattr("multiguard.report.figures._write", lambda figure, kind, file: file.write(kind.encode()))
    paths = draw_figures(study, tmp_path / "a", formats=["png"])
    assert [path.name for path in paths] == [f"{name}.png" for name in NAMES]
    assert {path.read_bytes() for path in paths} == {b"png"}
    names = {path.name for path in draw_figures(threshold, tmp_path / "b", formats=["svg"])}
    assert names == {f"{name}.svg" for name in ("methods", "threshold", "n", "alpha")}
    names = {path.name for path in draw_figures(unlabelled, tmp_path / "c", formats=["pdf"])}
    assert names == {f"{name}.pdf" for name in ("methods", "threshold", "alpha")}


def drawn_values(line, radius):
    """The values of a line as matplotlib draws it, at radii where it does not jump."""
    x, y = STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data())
    return np.interp(radius, x, y)


@pytest.mark.parametrize("kind", ["study", "threshold"])
def test_staircase(kind: str, request) -> None:
    """At any radius a line shows no more than is proved there: exactly evaluated, floors are higher, ceilings lower."""
    study = request.getfixturevalue(kind)
    certificates, family = study.main.certificates, by_key(study)["methods"]
    num_true = [len(labels) for labels in certificates.labels]
    radius = np.random.default_rng(0).uniform(0, family.radius[-1], 2000)
    with fixed_style():
        figure = family_figure(study, family)
    for axes, measure in zip(figure.axes, family.measures, strict=True):
        for line, method in zip(axes.lines, certificates.methods, strict=True):
            radii = set_radii(certificates, method)
            exact = set_scores(radii, certificates.config.rule, num_true=num_true, radius=radius)
            proved = measure.on_axis(getattr(exact, measure.key))
            gap = (proved - drawn_values(line, radius)) * (1 if measure.is_fraction else -1)
            assert gap.min() >= -1e-9
            assert np.ptp(proved) > 0


def test_ceiling_panel(threshold: Study) -> None:
    """A panel of ceilings counts labels, and its axis is cut off at 15."""
    with fixed_style():
        figure = family_figure(threshold, by_key(threshold)["n"])
    panel = figure.axes[-1]
    assert (panel.get_title(loc="left"), panel.get_ylabel()) == ("(d)  Wrong labels@R, at most", "labels per image")
    ceiling = threshold.main_curve("joint", "mean").scores.false_ceiling
    assert np.array_equal(panel.lines[1].get_ydata(), ceiling)
    assert ceiling.max() > panel.get_ylim()[1] == 15
    assert "axis of labels ends at 15" in figure_text(figure)


def test_hostile_names(hostile_study: Study, tmp_path: Path) -> None:
    """Hostile names are drawn as they are and never become markup."""
    with fixed_style():
        figure = family_figure(hostile_study, by_key(hostile_study)["noise"])
        (path,) = save(figure, tmp_path, "noise", ["svg"])
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert "σ = 0.25 (<b>again</b>)" in shown
    assert "<b>again" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("count", range(1, 9))
def test_stroke_differences(count: int) -> None:
    """Up to eight lines differ in dash and marker, and the base of an order is solid."""
    for strokes in (distinct_strokes(count), *(ordered_strokes(count, base) for base in range(count))):
        assert len({stroke["dash"] for stroke in strokes}) == len({stroke["marker"] for stroke in strokes}) == count
    assert all(ordered_strokes(count, base)[base]["dash"] == () for base in range(count))


def test_byte_order_marks(tmp_path) -> None:
    """A name with a byte order mark is drawn in every format."""
    with fixed_style():
        figure, (axes,) = new_figure("\ufeffcat", "a\ufeff\nb", height=1)
        draw_line(axes, [0, 1], [0, 1], distinct_strokes(1)[0], "\ufeff")
        axes.legend()
        assert [path.suffix for path in save(figure, tmp_path, "f", ("pdf", "svg"))] == [".pdf", ".svg"]


def test_panels_inside(study: Study, threshold: Study) -> None:
    """The tick labels and axis labels of three and of four panels stay inside and clear of their neighbours."""
    for each, key in ((study, "methods"), (study, "noise"), (threshold, "methods"), (threshold, "n")):
        with fixed_style():
            figure = family_figure(each, by_key(each)[key])
            boxes = [axes.get_tightbbox() for axes in figure.axes]
        assert min(box.x0 for box in boxes) >= 0
        assert min(box.y0 for box in boxes) >= 0
        assert max(box.x1 for box in boxes) <= figure.bbox.x1
        assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


def test_imports(tmp_path: Path) -> None:
    """Drawing imports neither pyplot nor torch nor plotly."""
    make_run(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from multiguard.evaluate import read_certificates; from multiguard.report import Study, draw_figures\n"
        f"run = Path({str(tmp_path)!r})\n"
        "draw_figures(Study(read_certificates(run / 'certificates')), run / 'figures', formats=['svg'])\n"
        "assert not {'matplotlib.pyplot', 'torch', 'plotly'} & set(sys.modules), 'imported'\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
