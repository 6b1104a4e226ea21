"""The files and commands on docs/scale.md are valid, and its table follows its formula."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.cli.test_main_documents import parse

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\d,]+)[^|]*\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) ([MG])B \|$", re.MULTILINE)
LITE0, RESNET101 = (
    int(rate.replace(",", "")) for rate in re.findall(r"with ([\d,]+) draws per second .* and ([\d,]+) for", PAGE)[0]
)
BYTES = 5.0


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_table():
    """The table follows its formula."""
    rows = ROW.findall(PAGE)
    assert len(rows) == 10
    for images, draws, small, large, size, unit in rows:
        total = int(images.replace(",", "")) * int(draws.replace(",", ""))
        assert float(small) == pytest.approx(total / LITE0 / 3600, rel=0.03)
        assert float(large) == pytest.approx(total / RESNET101 / 3600, rel=0.03)
        assert float(size) * {"M": 1e6, "G": 1e9}[unit] == pytest.approx(total * BYTES, rel=0.03)


def test_scripts():
    """The scripts are valid shell."""
    for script in blocks("bash") + blocks("sh"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_manifests():
    """The Kubernetes manifests are valid YAML and agree on their rendezvous."""
    service, job = yaml.safe_load_all(blocks("yaml")[0])
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (service["kind"], job["kind"], container["command"]) == ("Service", "Job", ["torchrun"])
    assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    arguments = container["args"]
    assert f"--rdzv-endpoint={job['metadata']['name']}-0.{service['metadata']['name']}:29500" in arguments
    assert f"--nnodes={job['spec']['completions']}" in arguments
    parse(arguments[arguments.index("multiguard") + 1 :])


def test_torchrun_commands():
    """The commands under torchrun parse."""
    scripts = [re.sub(r"\\\n", " ", block) for block in blocks("sh") + blocks("bash")]
    commands = [
        line.partition("-m multiguard ")[2] for block in scripts for line in block.splitlines() if "-m multi" in line
    ]
    assert len(commands) == 3
    for words in commands:
        parse(words.split())
