"""The steps that draw the evidence: each is run once, and only those that were named."""

import sys
from pathlib import Path

import pytest
from benchmarks.evidence import Evidence, Step


def _step(out: Path, name: str, code: str) -> Step:
    return Step(out, name, [sys.executable, "-c", code])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder for logs."""
    (tmp_path / "logs").mkdir()
    return tmp_path


def test_step(out: Path, capsys):
    """A step that is done is not repeated, and its output is kept; one that failed is run again."""
    once = _step(out, "coco/votes", f"open({str(out / 'count')!r}, 'a').write('x'); print('said')")
    broken = _step(out, "train it", "raise SystemExit(1)")
    for _ in range(2):
        once()
        broken()
    assert (out / "count").read_text() == "x"
    assert (out / "logs" / "coco-votes.log").read_text() == "said\n"
    assert capsys.readouterr().out.count("train it: FAILED") == 2


def test_only(out: Path, monkeypatch):
    """Only the named steps run, in any lane; a name that no step has is refused before anything runs."""
    ran: list[str] = []
    monkeypatch.setattr(Step, "__call__", lambda step: ran.append(step.log))
    with pytest.raises(SystemExit, match=r"no step sigma-0\.5-vote; --only takes"):
        Evidence(out, out, out, ["sigma-0.5-votes", "sigma-0.5-vote"], rehearse=True).run()
    assert not ran
    named = ["sigma-0.5-votes-adaptive", "sigma-1-votes", "attack-attack", "train-clean"]
    Evidence(out, out, out, named, rehearse=True).run()
    assert sorted(ran) == sorted(named)


def test_failure_in_a_lane(out: Path, monkeypatch):
    """An error of ours in any lane ends the run with it."""

    def fail(step: Step) -> None:
        raise OSError(step.log)

    monkeypatch.setattr(Step, "__call__", fail)
    with pytest.raises(OSError, match=r"sigma-0\.25-votes"):
        Evidence(out, out, out, ["sigma-0.25-votes"], rehearse=True).run()
