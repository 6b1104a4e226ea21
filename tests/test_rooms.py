"""The mathematics stands alone: it imports where torch does not exist."""

import subprocess
import sys

import pytest

BLOCK = "import sys; sys.modules['torch'] = None\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["multiguard", "multiguard.certify", "multiguard.evaluate", "multiguard.report"])
def test_imports_without_torch(module: str) -> None:
    finished = run(f"import {module}")
    assert finished.returncode == 0, finished.stderr


def test_certifies_without_torch() -> None:
    finished = run(
        "import numpy as np, multiguard\n"
        "hits = np.eye(3, dtype=bool)[np.repeat([0, 1], [90, 10])]\n"
        "assert multiguard.certified_radii(hits, [0], multiguard.TopK(1, 1), sigma=0.5).true[0] > 0\n"
    )
    assert finished.returncode == 0, finished.stderr


def test_the_block_blocks() -> None:
    finished = run("import torch")
    assert finished.returncode != 0
    assert "ModuleNotFoundError" in finished.stderr or "ImportError" in finished.stderr
