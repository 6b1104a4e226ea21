"""timm and transformers beside a torchvision that was built for another torch."""

import os
import subprocess
import sys
from pathlib import Path

import multiguard

PROGRAM = """
import sys
from multiguard.models.weight_files import import_library
timm, transformers = import_library("timm", "timm"), import_library("transformers", "hf")
timm.create_model("resnet10t", num_classes=3)
transformers.ViTForImageClassification
assert not [name for name in sys.modules if name.startswith("tests")]
print("both import")
"""


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, without these tests and their conftest."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    kept |= {"PYTHONPATH": str(Path(multiguard.__file__).parents[1]), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True, check=False)


def test_clean_process(tmp_path):
    """Both libraries import and build networks in a fresh process, whatever torchvision is installed."""
    found = run(PROGRAM, HF_HUB_OFFLINE="1")
    assert "both import" in found.stdout, found.stderr


def test_torchvision_without_operators(tmp_path):
    """A torchvision whose operators are absent imports at the second try; one that works is left alone."""
    (tmp_path / "torchvision").mkdir()
    fake = "import torch\n@torch.library.register_fake('torchvision::nms')\ndef nms(*_): ...\nready = True\n"
    (tmp_path / "torchvision" / "__init__.py").write_text(fake)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from multiguard.models import weight_files as operators
operators.declare_absent_operators()
import torchvision
print(torchvision.ready, torchvision.__file__.startswith({str(tmp_path)!r}), len(operators._declared))
"""
    assert run(program).stdout == "True True 1\n"
    (tmp_path / "torchvision" / "__init__.py").write_text("ready = True\n")
    assert run(program).stdout == "True True 0\n"
