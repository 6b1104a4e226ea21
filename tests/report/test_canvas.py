"""Lines differ without their colours, and the style is one on every machine."""

import matplotlib
import pytest

from multiguard.report.canvas import distinct_strokes, draw_line, fixed_style, new_figure, ordered_strokes, save


@pytest.mark.parametrize("count", range(1, 9))
def test_stroke_differences(count: int) -> None:
    """Up to eight lines differ in dash and marker, and the base of an order is solid."""
    for strokes in (distinct_strokes(count), *(ordered_strokes(count, base) for base in range(count))):
        assert len({stroke["dash"] for stroke in strokes}) == len({stroke["marker"] for stroke in strokes}) == count
    assert all(ordered_strokes(count, base)[base]["dash"] == () for base in range(count))


def test_fallback_fonts(monkeypatch) -> None:
    """An installed font draws what the first one lacks."""
    monkeypatch.setattr("multiguard.report.canvas._FONTS", ("DejaVu Sans", "No Such Font", "STIXGeneral"))
    with fixed_style():
        assert matplotlib.rcParams["font.family"] == ["DejaVu Sans", "STIXGeneral"]


def test_byte_order_marks(tmp_path) -> None:
    """A name with a byte order mark is drawn in every format."""
    with fixed_style():
        figure, (axes,) = new_figure("\ufeffcat", "a\ufeff\nb", height=1)
        draw_line(axes, [0, 1], [0, 1], distinct_strokes(1)[0], "\ufeff")
        axes.legend()
        assert [path.suffix for path in save(figure, tmp_path, "f", ("pdf", "svg"))] == [".pdf", ".svg"]
