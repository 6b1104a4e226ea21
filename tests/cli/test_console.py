import sys
import time

import pytest

from multiguard.cli.console import print_line, progress_bar


def test_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Where there is no terminal, a line says now and then how far it is, and quick work says nothing."""
    with progress_bar("images") as progress:
        for done in range(10):
            progress("reading", done, 10)
        assert capsys.readouterr() == ("", "")
        later = time.monotonic() + 60
        monkeypatch.setattr(time, "monotonic", lambda: later)
        for done in (3, 4, 10):
            progress("reading", done, 10)
    assert capsys.readouterr() == ("", "reading: 3 of 10 images, about 2.3 minutes left\n")


def test_terminal(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Count rate and time left on a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with progress_bar("images") as progress:
        progress("reading [x]", 3, 10)
        progress("training", 5, 20)
        print_line("epoch 1 [red] done")
    output = capsys.readouterr()
    assert output.err == ""
    for part in ("reading [x]", "3/10", "training", "5/20", "images/s", "\nepoch 1 [red] done\n"):
        assert part in output.out.replace("\x1b[2K", "").replace("\x1b[1A", "").replace("\r", "\n")
