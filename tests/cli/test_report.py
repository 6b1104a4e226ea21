"""`multiguard report`: the page of a run, and one table for several."""

import csv
import re

import pytest
from tests.pipeline.tiny_run import command, state
from tests.report.studies import UNLABELLED, make_run

from multiguard.cli.report import _folders


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("compared")
    make_run(home / "one", methods=("joint", "paper"))
    make_run(home / "two", spread=4.0)
    make_run(home / "unlabelled", **UNLABELLED)
    return home


def test_table(home, tmp_path) -> None:
    """The terminal has the scores, the differences and their intervals; the folder has a page and a table."""
    out = tmp_path / "out"
    code, printed, err = command("report", home / "one", f"new={home / 'two'}", "--radius", "0,0.25", "--out", out)
    assert (code, err) == (0, "")
    assert re.search(r"^one +linear +σ = 0.5 +.* +joint +100 +0.001$", printed, re.M)
    assert len(re.findall(r"^ +difference( +[+-]\d+\.\d){2}$", printed, re.M)) == 3
    assert len(re.findall(r"^ +interval( +[+-]\d+\.\d to [+-]\d+\.\d){2}$", printed, re.M)) == 3
    assert all(len(line) <= 80 for line in printed.splitlines()[:-1])
    assert {path.name for path in out.iterdir()} >= {"comparison.html", "comparison.csv"}
    records = csv.DictReader((out / "comparison.csv").read_text().splitlines())
    assert {record["run"] for record in records} == {"one", "new"}


def test_again(home, tmp_path) -> None:
    """The same comparison finds its work done; another one is written only with --force."""
    runs = ["report", home / "one", home / "two", "--out", tmp_path / "out"]
    assert command(*runs)[0] == 0
    before = state(tmp_path)
    assert command(*runs)[0] == 0
    assert state(tmp_path) == before
    code, _, err = command(*runs, "--radius", 0.1)
    assert (code, "--force" in err) == (2, True)
    assert command(*runs, "--radius", 0.1, "--force")[0] == 0


def test_all_methods(home) -> None:
    """Without a folder nothing is written; all methods of one run are compared."""
    code, printed, err = command("report", home / "one", "--method", "all", "--baseline", "one, paper")
    assert (code, err) == (0, "")
    assert "differences to one, paper" in printed


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a/certificates", "runs/b/certificates"], ["a", "b"]),
        (["x/a", "y/a"], ["x/a", "y/a"]),
        (["old=x/a", "y/a"], ["old", "a"]),
        (["runs/a/certificates", "runs/a/certificates-k-4"], ["a", "certificates-k-4"]),
        (["k=4", "b"], ["k=4", "b"]),
    ],
)
def test_names(runs, names, tmp_path, monkeypatch) -> None:
    """A run is named by its folder, by the folder around its certificates, or as it is told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k=4").mkdir()
    assert list(_folders(runs)) == names
