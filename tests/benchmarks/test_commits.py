"""The commit of each part: what is made now is of the present commit, and the rest keeps its commit and its votes."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.__main__ import origin_blocks
from benchmarks.results.commits import made_block, page_parts, votes_rows
from benchmarks.results.sources import Source, open_arrays

MADE = """Made by a command; certifying took 9 s.

| commit | parts |
| --- | --- |
| aaaaaaa | Last; Draws; Cost |"""
VOTES = """| votes | images | draws | commit |
| --- | --- | --- | --- |
| `one/votes` | 6 |  | aaaaaaa |
| `two/votes` | 6 | 10 | aaaaaaa |"""


def _block(name: str, text: str = "text") -> str:
    return f"<!-- results: {name} -->\n{text}\n<!-- end: {name} -->\n"


@pytest.fixture
def page() -> str:
    """Two headings with a part each, one with two, and blocks that are no parts."""
    start = f"# Results\n\n{_block('made', MADE)}\n## Votes\n\n{_block('votes', VOTES)}\n"
    parts = f"## Last\n{_block('z')}\n### Draws\n```console\n# no heading\n```\n{_block('draws')}\n"
    return f"{start}{parts}## Cost\n{_block('cost')}{_block('speed')}{_block('limit')}\n## Digits\n{_block('digits-k')}"


def _after(page: str, made: Collection[str], commit: str) -> str:
    """The page with its block `made` as a run leaves it."""
    return blocks.filled(page, made_block(page_parts(page, made, commit), 1234.5))


def test_headings(page: str) -> None:
    """The heading of a block is the nearest above it, not a comment in a code example."""
    found = blocks.headings(page)
    assert list(found) == blocks.names(page)
    assert (found["made"], found["z"], found["draws"], found["speed"]) == ("Results", "Last", "Draws", "Cost")


def test_parts(page: str) -> None:
    """Parts that are not made keep their commit; a heading of both commits is listed at both."""
    assert page_parts(page, {"speed", "draws", "limit"}, "b") == {"b": ["Draws", "Cost"], "aaaaaaa": ["Last", "Cost"]}
    assert page_parts(page, {"limit", "votes"}, "b") == {"aaaaaaa": ["Last", "Draws", "Cost"]}, "no part was made"


def test_made_block(page: str) -> None:
    """The block has the time and a table of commits, with headings in the order of the page."""
    made = blocks.texts(_after(page, ["speed", "z"], "b"))["made"]
    first, *table = made.splitlines()
    took = "certifying took 1,234 s of processor time on one core of a CPU"
    assert first == f"Made by `python -m benchmarks.results evidence`; {took}."
    assert table == [
        "",
        "| commit | parts |",
        "| --- | --- |",
        "| b | Last; Cost |",
        "| aaaaaaa | Draws; Cost |",
    ]


def test_later_runs(page: str) -> None:
    """A run takes the parts that it makes from older commits, also from its own, and a commit without parts goes."""
    page = _after(page, ["draws", "speed"], "b")
    assert page_parts(page, ["z"], "c") == {"c": ["Last"], "b": ["Draws", "Cost"], "aaaaaaa": ["Cost"]}
    assert page_parts(page, ["z"], "b") == {"b": ["Last", "Draws", "Cost"], "aaaaaaa": ["Cost"]}
    assert page_parts(page, ["cost", "speed", "z"], "c") == {"c": ["Last", "Cost"], "b": ["Draws"]}


def test_all_parts(page: str) -> None:
    """If all parts are made there is one commit, whatever the page says."""
    made = ["z", "draws", "cost", "speed"]
    expected = {"c": ["Last", "Draws", "Cost"]}
    assert page_parts(page, made, "c") == page_parts(_after(page, ["draws"], "b"), made, "c") == expected


def test_unlisted_heading(page: str) -> None:
    """A heading that the table does not list, perhaps a new name of one, is of an unknown commit, and stays so."""
    page = _after(page, ["draws"], "b").replace("## Last", "## New")
    expected = {"b": ["Draws"], "aaaaaaa": ["Cost"], "unknown": ["New"]}
    assert page_parts(page, [], "b") == page_parts(_after(page, [], "b"), [], "b") == expected


def test_votes_rows(page: str) -> None:
    """Rows stay as long as their commit is named."""
    rows = [["`one/votes`", "6", "", "aaaaaaa"], ["`two/votes`", "6", "10", "aaaaaaa"]]
    assert votes_rows(page, ["b", "aaaaaaa"]) == rows
    assert votes_rows(page, ["b"]) == []
    mixed = "| votes | draws | commit |\n| --- | --- | --- |\n| `one/votes` | 9 | b |\n| `one/votes` |  | c |"
    page = blocks.filled(_after(page, ["z"], "b"), {"votes": mixed})
    assert votes_rows(page, ["b", "aaaaaaa"]) == [["`one/votes`", "9", "b"]]
    assert votes_rows(blocks.filled(page, {"votes": ""}), ["b"]) == []


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Five draws of six images."""
    np.savez(tmp_path / "votes.npz", votes=np.zeros((6, 5, 1), dtype=np.uint8), labels=np.ones((6, 2), dtype=bool))
    return open_arrays(tmp_path / "votes.npz", "one/votes", 0.5, tmp_path / "kept")


def test_votes_of_two_commits(page: str, source: Source) -> None:
    """Votes of parts that are not made again stay below the new ones; a second run replaces only its own rows."""
    for _ in range(2):
        made = origin_blocks(page, ["z"], [source], "b")
        page = blocks.filled(page, made)
        heads, _, first, *old = made["votes"].splitlines()
        assert heads.endswith("| versions | commit |")
        assert first.startswith("| `one/votes` | 6 | votes ")
        assert first.endswith("| b |")
        assert old == ["| `one/votes` | 6 |  | aaaaaaa |", "| `two/votes` | 6 | 10 | aaaaaaa |"]
    made = origin_blocks(page, ["draws", "cost", "speed"], [source], "c")
    assert [line.split(" | ")[-1] for line in made["votes"].splitlines()[2:]] == ["c |", "b |"]
