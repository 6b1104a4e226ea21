"""The public names: few, documented, each with an example (pytest runs the examples: --doctest-modules)."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import multiguard

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
ROOMS = [
    path.name
    for path in Path(multiguard.__file__).parent.iterdir()
    if (path / "__init__.py").is_file() and "__all__" in (path / "__init__.py").read_text()
] + ["errors"]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(multiguard.__path__, "multiguard.")
    if not module.name.endswith("__main__")
)
FEWEST_EXAMPLES = 40


def examples(module: str) -> list[doctest.DocTest]:
    """The docstrings of a module that hold an example."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module), module)
    return [each for each in found if each.examples]


@pytest.mark.parametrize("name", multiguard.__all__)
def test_root_name(name: str) -> None:
    """Every public name resolves and has a docstring with a guarantee or a purpose."""
    assert getattr(multiguard, name) is not None
    assert getattr(multiguard, name).__doc__ or name == "__version__"


def test_small_surface() -> None:
    """`dir(multiguard)` shows the public names and nothing else, about thirty of them."""
    assert dir(multiguard) == sorted(multiguard.__all__)
    assert len(multiguard.__all__) <= 32


def test_unknown_name() -> None:
    """An unknown name is an AttributeError."""
    with pytest.raises(AttributeError, match="no attribute 'certified_radi'"):
        _ = multiguard.certified_radi


def test_example_coverage() -> None:
    """Every public function and class has an example, and there are many."""
    written = [test.name for module in MODULES for test in examples(module)]
    assert len(written) >= FEWEST_EXAMPLES
    exemplified = {part for name in written for part in name.split(".")}
    lacking = [name for name in multiguard.__all__ if name not in exemplified | {"METHODS", "__version__"}]
    assert lacking == []


def test_api_page() -> None:
    """The API page has every room with public names, and nothing that does not exist."""
    shown = re.findall(r"^::: multiguard\.(\w+)$", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(ROOMS)
    for room in shown:
        module = importlib.import_module(f"multiguard.{room}")
        assert all(getattr(module, name) is not None for name in getattr(module, "__all__", ()))
