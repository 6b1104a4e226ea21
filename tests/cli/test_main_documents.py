"""Every command line that the pages show parses, and those that need nothing but the digits run."""

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image
from tests.pipeline.tiny_run import PHOTOS, RECIPE, command
from typer.main import get_command

from multiguard.cli.main import app
from multiguard.data import DigitsDataset
from multiguard.models.card import read_card

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # its language and what it holds
SMALL = {
    "train": ["--epochs", "1", "--images", "64", "--set", "val_images=40", "--model", "cnn:4", "--size", "16"],
    "vote": ["--images", "5", "--draws", "60"],
    "calibrate": ["--force", "--recall", "0.1", "--radius", "0"],
    "certify": ["--force"],
    "report": ["--force"],
    "predict": ["--draws", "60"],
    "attack": ["--images", "2", "--set", "steps=2", "--set", "tries=2", "--draws", "30", "--force"],
    "run": ["--force"],
    "verify": ["--images", "2", "--set", "draws=20"],
}


def commands_of(text):
    """The commands in the fenced blocks of a page, each as its words."""
    blocks = [block for language, block in FENCE.findall(text) if language in ("", "console", "sh", "bash", "text")]
    lines = [line for block in blocks for line in re.sub(r"\\\n", " ", block).splitlines()]
    typed = [line.strip().removeprefix("$ ") for line in lines]
    return [shlex.split(line, comments=True)[1:] for line in typed if line.startswith("multiguard ")]


DOCUMENTED = [(page.name, words) for page in PAGES for words in commands_of(page.read_text(encoding="utf-8"))]


def parse(words):
    """Refuse words that the command would refuse before doing anything."""
    found, rest = get_command(app), list(words)
    while hasattr(found, "list_commands"):
        name = rest.pop(0)
        assert name in found.list_commands(None), f"no such command: {name}"
        found = found.get_command(None, name)
    found.make_context(found.name, rest)


@pytest.mark.parametrize(("page", "words"), DOCUMENTED, ids=[" ".join(words)[:60] for _, words in DOCUMENTED])
def test_documented_options(page, words):
    """A documented command parses."""
    parse(words)


def test_check_can_fail():
    """The check can fail."""
    with pytest.raises(Exception, match="No such option"):
        parse(["vote", "--model", "m", "--data", "digits", "--out", "v", "--drawz", "3"])
    with pytest.raises(AssertionError, match="no such command"):
        parse(["votes"])
    assert commands_of("```sh\n$ multiguard run \\\n  --out 'a b'  # minutes\nls\n```\nmultiguard not\n") == [
        ["run", "--out", "a b"]
    ]


def needs_only_digits(words):
    """Whether all that the command reads is embedded, or was made by an earlier one."""
    name = words[0]
    if name == "serve":
        return False  # it ends with Ctrl-C only
    if name in ("attack", "calibrate", "certify", "report", "verify"):
        runs = words[1:3] if "=" in words[1] else words[1:2]
        return all(Path(word.rpartition("=")[2]).is_dir() for word in runs)
    if name == "predict" and "--model" not in words:
        return False  # the built-in tagger takes its time
    if name == "predict":
        model = words[words.index("--model") + 1]
        return Path(model).is_dir() and all(Path(word).is_file() for word in words[1:] if word.endswith(".png"))
    if name == "vote" and not Path(words[words.index("--model") + 1]).is_dir():
        return False
    return "digits" in words or (name == "run" and len(words) > 1 and Path(words[1]).is_file())


def small(words):
    """Options that make a command quick; every band of a band ablation votes."""
    if words[0] == "vote" and str(read_card(Path(words[words.index("--model") + 1])).noise).startswith("band"):
        return ["--images", "5"]
    return SMALL[words[0]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_pages(page, tmp_path, monkeypatch):
    """The commands of a page run in their order."""
    (tmp_path / "recipes").mkdir()
    for name in ("digits", "digits-figures"):
        (tmp_path / "recipes" / f"{name}.yaml").write_text(RECIPE)
    (tmp_path / "recipes" / "photos.yaml").write_text(PHOTOS)
    monkeypatch.setattr("multiguard.run.recipe._FOLDER", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    for words in commands_of(page.read_text(encoding="utf-8")):
        for name in words if words[0] == "predict" else ():
            if name.endswith(".png"):
                Image.fromarray(DigitsDataset("test", size=40)[1].image[0]).save(tmp_path / Path(name).name)
        if needs_only_digits(words):
            code, _, err = command(*words, *small(words))
            assert code == 0, f"{' '.join(words)}: {err}"
