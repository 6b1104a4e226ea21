"""The results page is made of run folders, which are certified and reported if they are not yet."""

import shutil
from pathlib import Path

from benchmarks.results import blocks
from benchmarks.results.__main__ import digits_blocks
from benchmarks.results.runs import open_run
from tests.pipeline.tiny_run import command, state

from multiguard.io.rounding import percent_value

ROOT = Path(__file__).parents[2]


def test_digits_blocks(home, tmp_path):
    """A run without certificates fills its part of the page."""
    run = home / "run"
    shutil.rmtree(run / "certificates")
    opened = open_run(run)
    made = digits_blocks(opened, tmp_path, "abc")
    assert set(made) == {f"digits-{name}" for name in ("facts", "methods", "k", "n", "cost")}
    assert set(made) <= set(blocks.names((ROOT / "docs" / "results.md").read_text(encoding="utf-8")))
    assert sorted(path.name for path in tmp_path.glob("images/results/*")) == [
        f"digits-{name}.svg" for name in ("k", "methods", "n")
    ]
    recall = opened.study.main_curve("paper", "mean").scores.recall
    shown = [percent_value(float(recall[place])) for place in (0, 10, 20, 30, 40, 50)]
    assert f"| paper | recall | {' | '.join(shown)} |" in made["digits-methods"]
    assert "| commit | abc |" in made["digits-facts"]
    before = state(run)
    open_run(run)
    assert state(run) == before
    assert command("run", home / "tiny.yaml", "--out", run)[1].count("skipped (unchanged)") == 4
