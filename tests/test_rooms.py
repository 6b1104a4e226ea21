"""The mathematics, the results and the report work where torch does not exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BLOCK = "import sys; sys.modules['torch'] = None\n"
WITHOUT_TORCH = ["certify", "data", "evaluate", "io", "report", "votes"]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, check=False)


def test_imports_without_torch() -> None:
    """Seven rooms import where torch is not installed."""
    finished = run("".join(f"import multiguard.{room}\n" for room in WITHOUT_TORCH))
    assert finished.returncode == 0, finished.stderr


def test_certifies_without_torch() -> None:
    """The package certifies votes where torch is not installed."""
    finished = run(
        "import numpy as np, multiguard\n"
        "hits = np.eye(3, dtype=bool)[np.repeat([0, 1], [90, 10])]\n"
        "assert multiguard.certified_radii(hits, [0], multiguard.TopK(1, 1), sigma=0.5).true[0] > 0\n"
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("module", ["torch"])
def test_block(module: str) -> None:
    """The block of these tests blocks."""
    finished = run(f"import {module}")
    assert finished.returncode != 0
    assert "ModuleNotFoundError" in finished.stderr or "ImportError" in finished.stderr


def test_lowest_versions() -> None:
    """`make lowest`, a job of CI, names tests that exist; pytest would run none of them otherwise."""
    root = Path(__file__).parents[1]
    lines = subprocess.run(["make", "-n", "lowest"], cwd=root, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"tests/\S+", lines)
    assert len(named) > 5
    assert [path for path in named if not (root / path).exists()] == []
    jobs = yaml.safe_load((root / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]
    assert any(step.get("run") == "make lowest" for step in jobs["lowest"]["steps"])
