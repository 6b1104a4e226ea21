"""Each notebook holds the outputs of a run from start to end, and its cells run."""

import json
from pathlib import Path

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@each_notebook
def test_outputs(path):
    """The cells ran in order, without errors and warnings."""
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert {output.get("name", output["output_type"]) for output in outputs} <= {
        "execute_result",
        "display_data",
        "stdout",
    }


@pytest.mark.soak
@each_notebook
def test_cells(path):
    """The cells run one after the other."""
    mpl.use("Agg")
    names = {}
    for cell in code_cells(path):
        exec("".join(cell["source"]), names)
