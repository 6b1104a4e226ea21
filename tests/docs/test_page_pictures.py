"""Figures that are made from the built-in model are those of the model and the script that are here."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_how_it_works():
    """The figure of docs/how-it-works.md names the hashes of the model and of its script."""
    spec = importlib.util.spec_from_file_location("how_it_works", ROOT / "docs" / "hooks" / "how_it_works.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert f"<desc>{module.stamp()}</desc>" in module.PICTURE.read_text(encoding="utf-8")
