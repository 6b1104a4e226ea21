"""The figure of recall against draws shows the rows it is given."""

import csv
import io
from pathlib import Path

import pytest
from benchmarks.results.tradeoff import draw_tradeoff, read_point, tradeoff_figure

from multiguard.errors import InvalidInputError
from multiguard.report.canvas import fixed_style

PRINTED = """draws,forecast_margin,max_draws,images,average_draws,certified_recall
fixed,,1000,all,1000.0,43.72
fixed,,100,all,100.0,38.19
fixed,,100,held out,100.0,37.87
adaptive,2.0,100,all,55.8,37.67
adaptive,2.0,1000,held out,158.5,44.47
"""


def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(PRINTED)))


def test_tradeoff_formats(tmp_path: Path) -> None:
    """It comes in three formats with stable bytes."""
    first, again = draw_tradeoff(rows(), tmp_path / "a", dpi=40), draw_tradeoff(iter(rows()), tmp_path / "b", dpi=40)
    assert [path.name for path in first] == ["tradeoff.png", "tradeoff.svg", "tradeoff.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_tradeoff_panels() -> None:
    """There is a panel per set of images and a line per plan of draws."""
    with fixed_style():
        figure = tradeoff_figure([read_point(row) for row in rows()], "k = 10")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["all images", "held out images"]
    fixed, adaptive = figure.axes[0].lines
    assert (fixed.get_label(), adaptive.get_label()) == ("fixed", "adaptive, forecast margin 2")
    assert fixed.get_xydata().tolist() == [[100.0, 38.19], [1000.0, 43.72]]
    assert adaptive.get_xydata().tolist() == [[55.8, 37.67]]
    low, high = figure.axes[0].get_ylim()
    assert low < 37.67
    assert high > 44.47, "all panels share an axis that holds every point"


def test_other_rows(tmp_path: Path) -> None:
    """Rows of another table are refused."""
    with pytest.raises(InvalidInputError, match="no rows"):
        draw_tradeoff([], tmp_path)
    with pytest.raises(InvalidInputError, match=r"the row .* must have"):
        draw_tradeoff([{"draws": "fixed"}], tmp_path)
    with pytest.raises(InvalidInputError, match="certified_recall"):
        draw_tradeoff([rows()[0] | {"average_draws": "many"}], tmp_path)
    assert not list(tmp_path.iterdir())
