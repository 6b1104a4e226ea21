"""Lines differ without their colours, and the style is one on every machine."""

import matplotlib
import pytest

from multiguard.report.canvas import distinct_strokes, fixed_style, ordered_strokes


@pytest.mark.parametrize("count", range(1, 9))
def test_stroke_differences(count: int) -> None:
    """Up to eight lines differ in dash and marker, and the base of an order is solid."""
    for strokes in (distinct_strokes(count), *(ordered_strokes(count, base) for base in range(count))):
        assert len({stroke.dash for stroke in strokes}) == len({stroke.marker for stroke in strokes}) == count
    assert all(ordered_strokes(count, base)[base].dash == () for base in range(count))


def test_fallback_fonts(monkeypatch) -> None:
    """An installed font draws what the first one lacks."""
    monkeypatch.setattr("multiguard.report.canvas._FONTS", ("DejaVu Sans", "No Such Font", "STIXGeneral"))
    with fixed_style():
        assert matplotlib.rcParams["font.family"] == ["DejaVu Sans", "STIXGeneral"]
