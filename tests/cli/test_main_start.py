"""The command starts quickly: the help and a wrong option import only what they need."""

import json
import os
import subprocess
import sys

import pytest
from tests.pipeline.tiny_run import command

from multiguard.cli.main import _PANELS
from multiguard.version import __version__

# Runs the command, then prints which of the heavy libraries were imported.
SCRIPT = """
import json, sys
from multiguard.cli.main import run
sys.argv = ["multiguard", *sys.argv[1:]]
code = 0
try:
    run()
except SystemExit as left:
    code = left.code
heavy = ("numpy", "matplotlib", "torch")
print(json.dumps([code, [name for name in heavy if name in sys.modules]]))
"""


def started(*arguments):
    """The exit code, and the heavy libraries that the command imported."""
    asked = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(asked, capture_output=True, text=True, env=dict(os.environ), check=True)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("arguments", "code", "imported"),
    [
        (["--help"], 0, []),
        (["--version"], 0, []),
        (["vot"], 2, []),
        (["vote", "--help"], 0, ["numpy"]),
        (["vote", "--wrong"], 2, ["numpy"]),
        (["certify", "votes", "--k", "two"], 2, ["numpy"]),
        (["train", "--data", "digits", "--out", "m", "--epochs", "x"], 2, ["numpy"]),
    ],
)
def test_imports(arguments, code, imported):
    """Neither the help nor a mistake in an option waits for torch or matplotlib."""
    assert started(*arguments) == (code, imported)


@pytest.mark.parametrize(("name", "text"), [pair for panel in _PANELS.values() for pair in panel.items()])
def test_short_help(name, text):
    """What the list of commands says is how the help of the command begins."""
    words = [" ".join(said.split()) for said in (command(name, "--help")[1].partition("\n\n")[2], text)]
    assert words[0].lower().startswith(words[1].split(" and ")[0].split(",")[0].removesuffix(".").lower())


def test_version():
    """The version is shown."""
    assert command("--version") == (0, f"multiguard {__version__}\n", "")


def test_panels():
    """Options are listed under what they belong to, each once."""
    said = command("vote", "--help")[1]
    places = [said.index(f"\n{name} options:") for name in ("Model", "Data", "Vote", "Certify")]
    assert places == sorted(places)
    assert said.count("--batch-size") == said.count("--workers") == said.count("--labels ") == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("train", ["--batch-size", "--workers"]),
        ("vote", ["--batch-size", "--workers", "--device", "--labels"]),
        ("predict", ["--device", "--labels"]),
        ("attack", ["--device", "--labels"]),
        ("run", ["--device"]),
    ],
)
def test_option_names(name, options):
    """One thing has one name in every command."""
    said = command(name, "--help")[1]
    assert [option for option in options if f" {option} " not in said] == []
    assert not {"--batch ", "--readers "} & {word for word in ("--batch ", "--readers ") if word in said}
