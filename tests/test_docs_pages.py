"""No page of the documentation is left with a placeholder for what was to be filled in, or without its images."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)#]+)\)")
MOST_BYTES = 300_000
PLACEHOLDER = re.compile(r"\b[A-Z]+_(?:TABLE|SECTION|YAML)\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_holds_a_placeholder(page):
    assert [line for line in page.read_text(encoding="utf-8").splitlines() if PLACEHOLDER.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_image_of_a_page_is_there_and_small(page):
    images = [page.parent / name for name in IMAGE.findall(page.read_text(encoding="utf-8"))]
    assert [path.name for path in images if not path.is_file() or path.stat().st_size > MOST_BYTES] == []
