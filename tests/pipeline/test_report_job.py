"""A report that was interrupted is made by the same command, and a mistake in an option leaves nothing behind."""

import html
import re
import shlex
import signal

import pytest
from tests.cli.test_signals_process import started, wait_for
from tests.pipeline.tiny_run import command, state


@pytest.fixture
def alone(home):
    """Certificates without a report."""
    (home / "run" / "certificates").rename(home / "certificates")
    return home


def reported(alone, *more):
    return command("report", alone / "certificates", "--no-images", *more)


def test_interrupted_report(alone):
    """Ctrl-C loses nothing and the same command makes the report."""
    process = started("report", alone / "certificates", "--no-images")
    wait_for(alone / "figures" / "methods.png", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "multiguard: interrupted; nothing is lost: run it again\n"
    assert not (alone / "report.html").exists()
    code, out, err = reported(alone)
    assert code == 0, err
    assert f"report: {alone / 'report.html'}" in out


@pytest.mark.parametrize(
    "mistake", [["--gallery", -1], ["--beside", "x"], ["--beside", "x=gone"], ["--tables", "tiny.yaml"]]
)
def test_report_mistakes(alone, mistake, monkeypatch):
    """A mistake in an option leaves nothing."""
    monkeypatch.chdir(alone)
    before = state(alone)
    code, _, err = reported(alone, *mistake)
    assert (code, err.count("\n")) == (2, 1)
    assert state(alone) == before


def commands_on(page):
    text = page.read_text(encoding="utf-8")
    return html.unescape(re.search("<pre[^>]*><code>(.*?)</code>", text, re.DOTALL)[1]).splitlines()


def test_commands_on_page(home):
    """A page says what makes it again."""
    run, certificates = home / "run", home / "run/certificates"
    whole = commands_on(run / "report.html")
    assert whole[0].startswith("multiguard run ")
    assert len(whole) == 1
    other = home / "other certificates"
    assert command("certify", run / "votes", "--k", 4, "--k-prime", 2, "--alpha", 0.05, "--out", other)[0] == 0
    asked = ["report", certificates, "--out", home / "page.html", "--beside", f"k-4={other}"]
    code, _, err = command(*asked)
    assert code == 0, err
    assert commands_on(home / "page.html") == [
        *whole,
        f"multiguard certify {run}/votes --k 4 --k-prime 2 --alpha 0.05 --out '{other}'",
        shlex.join(["multiguard", *map(str, asked)]),
    ]
    code, _, err = command("report", run, "--title", "Mine", "--force")
    assert code == 0, err
    assert commands_on(run / "report.html") == [*whole, f"multiguard report {run} --title Mine --force"]


def test_stale_report_files(alone):
    """Stale and partial files of a report are removed, other files stay."""
    left = ["figures/.n.svg.x1y2.part", "figures/alpha.png", "tables/.k.tex.ab_c.part", ".report.html.z9.part"]
    mine = ["figures/.mine.part", "tables/notes.txt", ".other.html.z9.part"]
    for name in (*left, *mine):
        (alone / name).parent.mkdir(exist_ok=True)
        (alone / name).write_text("partial")
    before = set(state(alone))
    assert reported(alone, "--force")[0] == 0
    made = {name for name in state(alone / "run") if name.startswith(("figures/", "tables/"))}
    assert set(state(alone)) == (before - set(left)) | made | {"report.html"}


def test_foreign_figures(alone):
    """A folder with files that no report wrote is not written to without --force."""
    (alone / "figures").mkdir()
    (alone / "figures" / "holiday.png").write_text("mine")
    code, _, err = reported(alone)
    assert (code, err.count("\n")) == (2, 1)
    assert "figures holds holiday.png, which no report wrote; --force writes beside it" in err
    assert sorted(path.name for path in (alone / "figures").iterdir()) == ["holiday.png"]
