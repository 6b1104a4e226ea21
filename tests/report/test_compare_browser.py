"""The page of a comparison in a real browser: it shows the numbers of the runs, and fetches nothing."""

from itertools import product
from pathlib import Path

import pytest
from tests.report.browsing import open_page, settle, slide_to, table
from tests.report.conftest import HOSTILE_NAMES
from tests.report.studies import make_run

from multiguard.io.rounding import percent_value
from multiguard.report import Leaderboard, ReportConfig, compare_runs, write_comparison
from multiguard.report.compare import difference_words


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Leaderboard:
    home = tmp_path_factory.mktemp("runs")
    one = make_run(home / "one", methods=("joint", "paper"), **HOSTILE_NAMES)
    other = make_run(home / "other", spread=4.0, **HOSTILE_NAMES)
    return compare_runs(
        ReportConfig(radii=(0.0, 0.25, 0.5)), {"<b>one</b>": one, "</script><script>alert(1)</script>": other}
    )


@pytest.fixture(scope="module")
def path(board: Leaderboard, tmp_path_factory) -> Path:
    return write_comparison(board, tmp_path_factory.mktemp("page"))[0]


def test_numbers(board: Leaderboard, path: Path, opened) -> None:
    """The table has the certified scores at the chosen radius, and the differences with their intervals."""
    page, grid = opened(path).page, board.family.radius
    for averaging, index in product(("pooled", "mean"), (0, 8, 20)):
        page.locator(f"[name=averaging][value={averaging}]").check()
        slide_to(page, index)
        assert float(page.locator("#radius-shown").inner_text()) == grid[index]
        shown = table(page, "scores")
        assert list(shown) == [each.name for each in board.contenders]
        for each in board.contenders:
            for cell, measure in zip(shown[each.name], board.measures, strict=True):
                value, *difference = cell.split("\n")
                assert value == percent_value(float(measure.values(each.curves[averaging])[index]))
                found = board.difference(each, measure, index) if averaging == "mean" else None
                words = "{} ({} to {})".format(*difference_words(*found)).replace("-", "−") if found else ""
                assert "".join(difference) == words


def test_quiet(path: Path, opened) -> None:
    """Nothing is fetched, nothing fails, no name is taken for markup, and a phone never scrolls the page sideways."""
    visited = opened(path)
    page = visited.page
    page.locator("#scores .plot .js-line").first.wait_for(state="attached")
    page.locator("#table").scroll_into_view_if_needed()
    settle(page)
    assert [url for url in visited.requests if url != path.as_uri() and not url.startswith("data:")] == []
    assert visited.errors == []
    assert page.locator("script").count() == 3
    assert opened(path, width=390).page.evaluate("document.documentElement.scrollWidth") <= 390


def test_address(path: Path, opened) -> None:
    """What is chosen is in the address, and a page opened with that address shows it."""
    page = opened(path).page
    slide_to(page, 20)
    page.locator("[name=averaging][value=pooled]").check()
    page.wait_for_url(lambda url: "average=pooled" in url)
    other = open_page(page.context, path, page.url.removeprefix(path.as_uri())).page
    assert other.locator("#radius").input_value() == "20"
    assert other.locator("[name=averaging]:checked").input_value() == "pooled"
    other.close()
