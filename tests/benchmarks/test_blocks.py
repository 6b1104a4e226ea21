"""Generated blocks of a page are replaced, and nothing else is; each names the commit that made it."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.__main__ import origin_blocks
from benchmarks.results.markdown_tables import csv_rows
from benchmarks.results.sources import open_arrays


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


def test_origin_blocks(page: str, tmp_path: Path):
    """The page lists its commits, and votes as long as a part is of their commit; a run replaces its own votes."""
    np.savez(tmp_path / "votes.npz", votes=np.zeros((6, 5, 1), dtype=np.uint8), labels=np.ones((6, 2), dtype=bool))
    source = open_arrays(tmp_path / "votes.npz", "one/votes", 0.5, tmp_path / "kept")
    page = blocks.filled(page, origin_blocks(page, [source], "aaa", tmp_path))
    for made, commits in (
        (["z"], ["bbb", "aaa"]),
        (["z"], ["bbb", "aaa"]),
        (["draws", "cost", "speed"], ["ccc", "bbb"]),
    ):
        page = blocks.filled(page, dict.fromkeys(made, "new"), commits[0])
        origin = origin_blocks(page, [source], commits[0], tmp_path)
        page = blocks.filled(page, origin)
        rows = csv_rows(tmp_path, "votes")
        assert [row[0] for row in rows] == ["one/votes"] * 2
        assert [row[-1] for row in rows] == commits
    assert origin["made"].splitlines()[-2:] == ["| bbb | Last |", "| ccc | Draws; Cost |"]
