"""The YAML blocks of the pages are valid: recipes, and the description of a model."""

import re
from pathlib import Path

import pytest

from multiguard.models.config import ModelConfig
from multiguard.run.recipe import parse_recipe

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_recipe():
    """The recipe of docs/own-model.md."""
    recipe, _ = blocks("own-model.md")
    assert parse_recipe(recipe, "mine.yaml").certify.k == 5


def test_model(tmp_path):
    """The description of a model names files that lie next to it; a file that is missing raises an error."""
    _, model = blocks("own-model.md")
    (tmp_path / "my_model.yaml").write_text(model)
    for name in ("labels.txt", "classifier.onnx"):
        with pytest.raises(Exception, match=name):
            ModelConfig(spec=str(tmp_path / "my_model.yaml")).resolved()
        (tmp_path / name).write_text("cat\n")
    assert ModelConfig(spec=str(tmp_path / "my_model.yaml")).resolved().mean == (0.485, 0.456, 0.406)
