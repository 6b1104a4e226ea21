"""Generated blocks of a page are replaced, and nothing else is; each names the commit that made it."""

import pytest
from benchmarks.results import blocks


def test_blocks():
    """A block is replaced and every other character stays."""
    page = "a\n<!-- results: x -->\nold\n<!-- end: x -->\nb\n<!-- results: y -->\nkept\n<!-- end: y -->\n"
    assert blocks.names(page) == ["x", "y"]
    assert blocks.filled(page, {"x": "new | \\1\n"}) == page.replace("old", "new | \\1")
    assert blocks.filled(page, {}) == page
    with pytest.raises(ValueError, match="no block 'z'; it has x, y"):
        blocks.filled(page, {"z": ""})


def _block(name: str, text: str = "text") -> str:
    return f"<!-- results: {name} -->\n{text}\n<!-- end: {name} -->\n"


@pytest.fixture
def page() -> str:
    """Two headings with a part each and one with two, all made at the commit aaa; the last block names no commit."""
    head = f"# Results\n\n{_block('made')}\n## Votes\n\n{_block('votes')}\n## Last\n{_block('z')}\n"
    example = f"### Draws\n```console\n# no heading\n```\n{_block('draws')}\n"
    text = f"{head}{example}## Cost\n{_block('cost')}{_block('speed')}\n## Digits\n{_block('digits-k')}"
    return blocks.filled(text, dict.fromkeys(["z", "draws", "cost", "speed"], "text"), "aaa")


def test_commits(page: str):
    """A block names the commit of the run that made it last; headings are in the page's order, each once."""
    assert blocks.commits(page) == {"aaa": ["Last", "Draws", "Cost"]}
    some = blocks.filled(page, {"speed": "new", "draws": "new"}, "bbb")
    assert blocks.commits(some) == {"aaa": ["Last", "Cost"], "bbb": ["Draws", "Cost"]}
    assert blocks.texts(some) == blocks.texts(page) | {"speed": "new", "draws": "new"}
    again = blocks.filled(some, {"speed": "newer", "draws": "newer"}, "ccc")
    assert blocks.commits(again) == {"aaa": ["Last", "Cost"], "ccc": ["Draws", "Cost"]}
