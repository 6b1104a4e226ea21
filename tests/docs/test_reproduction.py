"""The numbers of the reproduction matrix are those of the files that are published with it."""

import csv
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILES = {"against": "methods", "with and": "methods", "training": "row-training"}
NUMBER = re.compile(r"\d+\.\d(?!\d)")


def rows():
    """(the row's first words, its cell of our numbers) of each row that was run."""
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    name = ""
    for line in page.partition("## The reproduction matrix")[2].partition("\n\n**Why")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and not cells[0].startswith(("---", "the paper's row")):
            name = cells[0] or name
            if cells[5]:
                yield name, cells[5]


@pytest.mark.parametrize(("name", "ours"), list(rows()))
def test_numbers(name, ours):
    """Every number of a row is in the file of that row."""
    file = next((file for start, file in FILES.items() if name.startswith(start)), None)
    if file is None:
        first = name.split()[0].replace("'", "_prime")
        file = f"row-{first}"
    with (DOCS / "results" / f"{file}.csv").open(encoding="utf-8", newline="") as lines:
        known = {cell for row in csv.reader(lines) for cell in row}
    parts = re.sub(r"(at )?(R|sigma|alpha) = [\d.e, -]*\d( and \d+)?:?", "", ours)
    found = NUMBER.findall(parts)
    assert len(found) >= 2
    assert set(found) <= known


def test_runs():
    """Most rows were not run, and the page says so."""
    assert 10 <= len(list(rows())) <= 16
