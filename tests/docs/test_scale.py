"""The files and commands on docs/scale.md are valid, and its table follows its formula."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.cli.test_main_documents import parse

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) GB \|$", re.MULTILINE)
RATES = re.compile(r"([\d,]+) draws per second for a ResNet-101 .* ([\d,]+) for the network of .* ([\d,]+) for `tf_")
BYTES = 5.0


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


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


def test_scripts():
    """The scripts are valid shell, and the command in them parses."""
    for script in blocks("bash"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        parse(shlex.split(script.replace("\\\n", " ").partition("multiguard ")[2]))


def test_cluster():
    """The cluster follows Ray's own schema."""
    ray, jsonschema = pytest.importorskip("ray"), pytest.importorskip("jsonschema")
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))
    cluster = yaml.safe_load(blocks("yaml")[0])
    jsonschema.validate(cluster, schema)
    assert cluster["head_node_type"] in cluster["available_node_types"]


def test_kubernetes_job():
    """The job of Kubernetes is valid YAML; all pods see one disk, and its command parses."""
    job = yaml.safe_load(blocks("yaml")[1])
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert len({json.dumps(group["template"]["spec"]["volumes"]) for group in groups}) == 1
    parse(shlex.split(job["spec"]["entrypoint"])[1:])
