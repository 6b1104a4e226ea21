"""A run folder fills its part of the results page."""

from pathlib import Path

from benchmarks.results import blocks
from benchmarks.results.digits_run import digits_blocks

from multiguard.evaluate import read_certificates
from multiguard.io.rounding import percent_value
from multiguard.report import Study

ROOT = Path(__file__).parents[2]


def test_digits_blocks(home, tmp_path):
    """The facts, methods and sweeps of a run are those of its files."""
    run = home / "run"
    made = digits_blocks(run, tmp_path, "abc")
    assert set(made) == {f"digits-{name}" for name in ("facts", "methods", "k", "n")}
    assert set(made) <= set(blocks.names((ROOT / "docs" / "results.md").read_text(encoding="utf-8")))
    assert sorted(path.name for path in tmp_path.glob("images/results/*")) == [
        f"digits-{name}.svg" for name in ("k", "methods", "n")
    ]
    recall = Study(read_certificates(run / "certificates")).main_curve("paper", "mean").scores.recall
    shown = [percent_value(float(recall[place])) for place in (0, 10, 20, 30, 40, 50)]
    assert f"| paper | recall | {' | '.join(shown)} |" in made["digits-methods"]
    assert "| commit | abc |" in made["digits-facts"]
