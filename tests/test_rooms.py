"""Everything but torch models, training and attacks works where torch does not exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BLOCK = """
import sys

class WithoutTorch:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, *rest)

sys.meta_path[:] = map(WithoutTorch, sys.meta_path)
"""
WITHOUT_TORCH = ["certify", "data", "evaluate", "io", "report", "votes"]
CORE = [
    "models.loading",
    "models.onnx",
    "models.sklearn",
    "smooth.dataset",
    "smooth.predictor",
    "smooth.probe",
    "smooth.vote",
]
IMPORTS = "import numpy as np, multiguard\nfrom multiguard import Smoother, TopK\nrows = np.eye(3)[[0, 1, 2] * 4]\n"
CERTIFIED = """
smoother = Smoother(model, sigma=0.25)
results = smoother.certify((rows, [[0], [1], [2]] * 4), TopK(1, k_prime=1), draws=300, progress=False)
assert results.recall(0.25) == 1.0
assert smoother.predict(rows[0], TopK(1, k_prime=1), noise_seed=0).labels == (0,)
assert results.provenance["device"].endswith(("arrays", "onnxruntime"))
assert "torch" not in results.provenance["versions"]
"""
MODELS = {
    "numpy": "model = lambda x: 1.0 * x\n",
    "sklearn": """
from sklearn.linear_model import LogisticRegression
model = LogisticRegression(C=100).fit(rows, [0, 1, 2] * 4)
""",
    "onnx": """
import onnxruntime
from onnx import helper
graph = [helper.make_tensor_value_info(name, 1, ["N", 3]) for name in ("rows", "scores")]
graph = helper.make_graph([helper.make_node("Identity", ["rows"], ["scores"])], "same", graph[:1], graph[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
model = onnxruntime.InferenceSession(model.SerializeToString())
""",
}


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, check=False)


def test_imports_without_torch() -> None:
    """Six rooms, and the core of two others, import where torch is not installed."""
    finished = run("".join(f"import multiguard.{room}\n" for room in WITHOUT_TORCH + CORE))
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


@pytest.mark.parametrize("model", MODELS)
def test_smooths_without_torch(model: str) -> None:
    """A NumPy function, an estimator and an ONNX session are certified and predicted where torch is not installed."""
    finished = run(IMPORTS + MODELS[model] + CERTIFIED)
    assert finished.returncode == 0, finished.stderr


SERVED = """
from multiguard.serve.app import Service, make_app
from multiguard.serve.config import ServeConfig
from multiguard.serve.runs import Run, attack_run
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Predictor
smoother = Smoother(lambda x: x.mean((2, 3)), 0.5, labels=["red", "green", "blue"])
predictor = Predictor(smoother, TopK(1, k_prime=1), 8, "colours", PredictConfig())
make_app(Service(predictor, ServeConfig()))
run = Run(predictor, np.zeros((3, 8, 8), np.uint8), "0")
run.live.draw(50)
try:
    attack_run(run, None, 0.5)
except multiguard.MultiGuardError as error:
    assert "needs torch" in str(error)
else:
    raise AssertionError
"""


def test_serves_without_torch() -> None:
    """The live page works where torch is not installed; its attack says what it needs."""
    finished = run(IMPORTS + SERVED)
    assert finished.returncode == 0, finished.stderr


COMMANDS = """
import sys
sys.argv = {!r}
from multiguard.__main__ import main
main()
"""


def test_commands_without_torch(tmp_path: Path) -> None:
    """Votes of a NumPy function, and the prediction of a photo, where torch is not installed."""
    own, votes = tmp_path / "own.py", tmp_path / "votes"
    own.write_text("def scores(images):\n    return images.reshape(len(images), -1)[:, :10]\n")
    vote = f"vote --data digits --model {own}:scores --images 3 --draws 20 --sigma 0.5 --out {votes}"
    photo = Path(__file__).parent.parent / "src/multiguard/data/photos/coffee.jpg"
    for line in (vote, f"predict {photo} --draws 5 --set pilot_draws=5"):
        finished = run(COMMANDS.format(["multiguard", *line.split()]))
        assert finished.returncode == 0, finished.stderr
