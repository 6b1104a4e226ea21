"""The script and commands on docs/scale.md are valid, and its table follows its formula."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.cli.test_main_documents import parse

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) GB \|$", re.MULTILINE)
RATES = re.compile(r"([\d,]+) draws per second for a ResNet-101 .* ([\d,]+) for the network of .* ([\d,]+) for `tf_")
BYTES = 5.0


def number(text):
    return float(text.replace(",", ""))


def test_table():
    """The table follows its formula."""
    rates, rows = [number(rate) for rate in RATES.findall(PAGE.replace("\n", " "))[0]], ROW.findall(PAGE)
    assert {number(row[0]) for row in rows} == {1e5, 1e6, 1e7}
    for images, draws, *hours, size in rows:
        total = number(images) * number(draws)
        assert [number(each) for each in hours] == pytest.approx([total / rate / 3600 for rate in rates], rel=0.03)
        assert number(size) == pytest.approx(total * BYTES / 1e9, rel=0.03)


def test_script():
    """The script is valid shell, and the command in it parses."""
    (script,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    parse(shlex.split(script.replace("\\\n", " ").partition("multiguard ")[2]))
