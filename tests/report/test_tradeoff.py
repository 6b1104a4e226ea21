"""The figure of recall against draws shows the rows it is given."""

import csv
import io
from pathlib import Path

import pytest

from multiguard.errors import InvalidInputError
from multiguard.report import draw_tradeoff
from multiguard.report.canvas import fixed_style
from multiguard.report.tradeoff import _draw, _point

PRINTED = """draws,forecast_margin,looks,max_draws,images,average_draws,certified_recall
fixed,,1,1000,all,1000.0,43.72
fixed,,1,100,all,100.0,38.19
fixed,,1,100,held out,100.0,37.87
adaptive,2.0,3,100,all,55.8,37.67
adaptive,2.0,9,1000,held out,158.5,44.47
"""


def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(PRINTED)))


def test_it_comes_in_three_formats_and_the_same_each_time(tmp_path: Path) -> None:
    first, again = draw_tradeoff(rows(), tmp_path / "a"), draw_tradeoff(iter(rows()), tmp_path / "b")
    assert [path.name for path in first] == ["tradeoff.png", "tradeoff.svg", "tradeoff.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_panel_for_each_set_of_images_and_a_line_for_each_way_to_draw() -> None:
    with fixed_style():
        figure = _draw([_point(row) for row in rows()], "k = 10")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["all images", "held out images"]
    fixed, adaptive = figure.axes[0].lines
    assert (fixed.get_label(), adaptive.get_label()) == ("fixed", "adaptive, forecast_margin 2")
    assert fixed.get_xydata().tolist() == [[100.0, 38.19], [1000.0, 43.72]]
    assert adaptive.get_xydata().tolist() == [[55.8, 37.67]]
    low, high = figure.axes[0].get_ylim()
    assert low < 37.67
    assert high > 44.47, "all panels share an axis that holds every point"


def test_rows_of_another_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no rows"):
        draw_tradeoff([], tmp_path)
    with pytest.raises(InvalidInputError, match="this one has not"):
        draw_tradeoff([{"draws": "fixed"}], tmp_path)
    with pytest.raises(InvalidInputError, match="certified_recall"):
        draw_tradeoff([rows()[0] | {"average_draws": "many"}], tmp_path)
    assert not list(tmp_path.iterdir())
