"""A report that was interrupted is made by the same command, and a mistake in an option leaves nothing behind."""

import html
import re
import signal

import pytest
from tests.cli.test_signals_process import started, wait_for
from tests.pipeline.tiny_run import command, state

from multiguard.io.lock import LOCK_NAME


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
    wait_for(alone / LOCK_NAME, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "multiguard: interrupted; nothing is lost: run it again\n"
    assert not (alone / "report.html").exists()
    code, out, err = reported(alone)
    assert code == 0, err
    assert f"report: {alone / 'report.html'}" in out


@pytest.mark.parametrize("mistake", [["--gallery", -1], ["--radius", -1], ["--out", "tiny.yaml/r.html"]])
def test_report_mistakes(alone, mistake, monkeypatch):
    """A mistake in an option leaves nothing."""
    monkeypatch.chdir(alone)
    before = state(alone)
    code, _, err = reported(alone, *mistake)
    assert (code, err.count("\n")) == (2, 1)
    assert state(alone) == before


def commands_on(page):
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall("<pre[^>]*><code>(multiguard .*?)</code>", text, re.DOTALL)
    return html.unescape(found).splitlines()


def test_commands_on_page(home):
    """A page says what makes it again, and names no folder of whoever made it."""
    run, certificates = home / "run", home / "run/certificates"
    whole = commands_on(run / "report.html")
    assert whole[0].startswith("multiguard run ")
    assert len(whole) == 1
    code, _, err = command("report", certificates, "--out", home / "page.html")
    assert code == 0, err
    assert commands_on(home / "page.html") == [*whole, "multiguard report certificates --out page.html"]
    code, _, err = command("report", run, "--title", "Mine", "--force")
    assert code == 0, err
    assert commands_on(run / "report.html") == [*whole, "multiguard report run --title Mine --force"]
    assert str(home) not in (run / "report.html").read_text()


def test_stale_report_files(alone):
    """What an earlier report and a killed one left is removed; files of somebody else stay."""
    certify = ["certify", alone / "run" / "votes", "--k", 3, "--k-prime", 2, "--force", "--out", alone / "certificates"]
    assert command(*certify, "--sweep", "alpha=0.1,0.01")[0] == 0
    assert reported(alone)[0] == 0
    swept = set(state(alone))
    assert "figures/alpha.png" in swept
    (alone / ".multiguard-ab12cd34.part").mkdir()
    (alone / ".multiguard-ab12cd34.part" / "report.html").write_text("partial")
    mine = ["figures/.mine.part", "tables/notes.txt", ".other.html.z9.part"]
    for name in mine:
        (alone / name).write_text("mine")
    assert command(*certify)[0] == 0
    assert reported(alone, "--force")[0] == 0
    stale = {name for name in swept if name.startswith(("figures/alpha", "tables/alpha"))}
    assert set(state(alone)) == (swept - stale) | set(mine)


def test_foreign_figures(alone):
    """A folder with files that no report wrote is not written to without --force."""
    (alone / "figures").mkdir()
    (alone / "figures" / "holiday.png").write_text("mine")
    code, _, err = reported(alone)
    assert (code, err.count("\n")) == (2, 1)
    assert "figures holds holiday.png, which is not of this command; --force writes next to it" in err
    assert sorted(path.name for path in (alone / "figures").iterdir()) == ["holiday.png"]
    (alone / "figures" / "methods.png").write_text("mine")
    code, _, err = reported(alone, "--force")
    assert (code, "methods.png is not as multiguard wrote it, so it is not replaced" in err) == (2, True)
    assert {path.read_text() for path in (alone / "figures").iterdir()} == {"mine"}
    assert not (alone / "report.html").exists()


def test_repeated_report(alone):
    """The same command finds its work done and changes nothing; another one needs --force."""
    assert reported(alone)[0] == 0
    before = state(alone)
    code, out, err = reported(alone)
    assert (code, state(alone)) == (0, before), err
    assert f"report: {alone / 'report.html'}" in out
    code, _, err = reported(alone, "--title", "Other")
    assert (code, "holds a report already, made with other settings; --force" in err) == (2, True), err
