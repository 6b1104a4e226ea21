"""The reproduction matrix is what `python -m benchmarks.results` makes of the published files."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.reproduction import Lines, _alpha, _draws, _k, _k_prime, _sigma, reproduction_blocks

DOCS = Path(__file__).parents[2] / "docs"
LEVEL = [50.0] * 7


def test_page():
    """The page has the matrix, the findings and the reasons that the files give; else run the command."""
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert blocks.filled(page, reproduction_blocks(DOCS)) == page


def test_order(tmp_path):
    """What does not reproduce comes first; a score that a file does not have is left to the figure."""
    shutil.copytree(DOCS / "results", tmp_path / "results")
    path = tmp_path / "results" / "row-training.csv"
    path.write_text(path.read_text().replace("71.3", "21.3"))
    rows = [line.split(" | ") for line in reproduction_blocks(tmp_path)["matrix"].splitlines()[2:]]
    verdicts = [row[-1].strip("| ") for row in rows[::2]]
    assert {verdict.partition(":")[0] for verdict in verdicts[:2]} == {"does not reproduce"}
    assert "recall: does not reproduce" in verdicts[2], "noise in training, with the changed number"
    assert {row[-1].strip("| ") for row in rows[1::2]} == {"not run"}
    path = tmp_path / "results" / "row-k.csv"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "precision" not in line) + "\n")
    assert "precision: see the figure" in reproduction_blocks(tmp_path)["matrix"]


@pytest.mark.parametrize(
    ("judged", "more", "expected"),
    [
        (_k_prime, [60, 60, 60, 60, 60, 30, 0], [True, True]),
        (_k_prime, [40, 40, 40, 40, 40, 40, 40], [False, False]),
        (_k, [40, 40, 40, 40, 40, 0, 0], [True, False]),
        (_sigma, [40, 60, 60, 60, 60, 60, 60], [True, True]),
        (_sigma, [60, 60, 60, 60, 60, 40, 40], [False, False]),
        (_draws, [50.4] * 7, [True, True]),
        (_draws, [50, 50, 50, 50, 50, 50, 51], [True, False]),
        (_alpha, [49] * 7, [False, True]),
    ],
)
def test_verdicts(judged, more, expected):
    """Each part of a claim is judged by the lines of its figure."""
    lines = Lines(["few", "many"], np.array([LEVEL, more], dtype=float))
    assert list(judged(lines).values()) == expected
