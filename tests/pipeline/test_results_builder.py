"""A run folder fills its part of the results page."""

from pathlib import Path

from benchmarks.results import blocks
from benchmarks.results.digits_run import digits_blocks
from benchmarks.results.markdown_tables import csv_rows

from multiguard.evaluate import read_certificates
from multiguard.io.rounding import percent_value
from multiguard.report import Study

ROOT = Path(__file__).parents[2]


def test_digits_blocks(home, tmp_path):
    """The methods and sweeps of a run are those of its files."""
    run = home / "run"
    made = digits_blocks(run, tmp_path, "abc")
    assert set(made) <= set(blocks.names((ROOT / "docs" / "results.md").read_text(encoding="utf-8")))
    recall = Study(read_certificates(run / "certificates")).main_curve("paper", "mean").scores.recall
    shown = [percent_value(float(recall[place])) for place in (0, 10, 20, 30, 40, 50)]
    assert f"`paper` {shown[2]} and {shown[4]} %" in made["digits"]
    assert "at commit abc" in made["digits"]
    rows = csv_rows(tmp_path, "digits")
    assert {row[0] for row in rows} == {"methods", "k", "n"}
    assert next(row for row in rows if row[:3] == ["methods", "paper", "recall"])[3:9] == shown
