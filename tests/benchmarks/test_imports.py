"""Every benchmark starts: what it takes from the package is there."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if not path.name.startswith("__")
)


@pytest.mark.parametrize("name", NAMES)
def test_import(name):
    """A benchmark that is rarely run does not break unseen."""
    assert importlib.import_module(name).__doc__
