"""The command starts quickly: the help and a wrong option import only what they need."""

import json
import os
import platform
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import yaml
from tests.conftest import REPOSITORY
from tests.evaluate.votes_cases import random_votes
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
        (["predict", "gone.jpg"], 2, ["numpy"]),
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
    """The version is shown, and what a bug report needs."""
    code, out, err = command("--version")
    assert (code, out.splitlines()[0], err) == (0, f"multiguard {__version__}", "")
    assert f"Python {platform.python_version()}" in out
    assert f"numpy {np.__version__}" in out


# Runs commands where only what `pip install multiguard` brings can be imported.
WITHOUT_TORCH = """
import json, sys
for name in ("torch", "accelerate", "safetensors", "timm", "transformers"):
    sys.modules[name] = None
from multiguard.cli.main import run
for words in json.loads(sys.argv[1]):
    sys.argv = ["multiguard", *words]
    try:
        run()
    except SystemExit as left:
        print("exit", left.code, flush=True)
"""


def test_without_torch(tmp_path):
    """Votes are certified and reported where torch is not installed; training says what to install."""
    random_votes(tmp_path / "votes", images=3, draws=30)
    certify = ["certify", str(tmp_path / "votes"), "--k", "3", "--k-prime", "2"]
    report = ["report", str(tmp_path / "certificates"), "--no-images"]
    train = ["train", "--data", "digits", "--sigma", "1", "--out", str(tmp_path / "new")]
    asked = [sys.executable, "-c", WITHOUT_TORCH, json.dumps([certify, report, train])]
    done = subprocess.run(asked, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert [line for line in done.stdout.splitlines() if line.startswith("exit")] == ["exit 0", "exit 0", "exit 2"]
    assert done.stderr == "multiguard: train needs torch: pip install 'multiguard[torch]'\n"
    assert (tmp_path / "report.html").is_file()


def test_requirements():
    """What is installed without extras holds no torch, and the torch extra does."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[ ]", one)[0] for one in project["dependencies"]}
    assert not names & {"torch", "accelerate", "safetensors", "timm", "transformers"}
    assert any(one.startswith("torch>=") for one in project["optional-dependencies"]["torch"])


def test_citation():
    """The citation file and the README name the same paper."""
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())["preferred-citation"]
    readme = (REPOSITORY / "README.md").read_text().replace("{", "").replace("}", "")
    assert cited["title"] in readme
    assert all(one["family-names"] in readme for one in cited["authors"])
