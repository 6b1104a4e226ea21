"""The pages of the documentation are complete: no placeholders, every image present and small."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)#]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#:]+)(?:#[^)]*)?\)")
MOST_BYTES = {".gif": 2_000_000}  # of an animation; 300,000 of others
PLACEHOLDER = re.compile(r"\b[A-Z]+_(?:TABLE|SECTION|YAML)\b")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@each_page
def test_placeholders(page):
    """No page holds a placeholder that was to be filled in."""
    assert [line for line in page.read_text(encoding="utf-8").splitlines() if PLACEHOLDER.search(line)] == []


@each_page
def test_images(page):
    """Every image of a page exists and is small."""
    images = [page.parent / name for name in IMAGE.findall(page.read_text(encoding="utf-8"))]
    assert [
        path.name for path in images if not path.is_file() or path.stat().st_size > MOST_BYTES.get(path.suffix, 300_000)
    ] == []


@each_page
def test_links(page):
    """Every file that a page links exists; `make docs` checks the anchors."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [name for name in LINK.findall(text) if not (page.parent / name).exists()] == []


@each_page
def test_line_length(page):
    """Lines of prose are below 200 characters; rows of tables and images may be longer."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line[:60] for line in lines if len(line) >= 200 and not line.startswith(("|", "!["))] == []
