"""Every public name can be imported and is on the API page."""

import importlib
import re
from pathlib import Path

import pytest

import multiguard

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
ROOMS = ["attack", "certify", "evaluate", "report", "smooth", "votes", "models", "data", "train", "pipeline", "errors"]


@pytest.mark.parametrize("name", multiguard.__all__)
def test_root_names_resolve(name: str) -> None:
    assert getattr(multiguard, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'certified_radi'"):
        _ = multiguard.certified_radi


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_on_the_api_page(room: str) -> None:
    module = importlib.import_module(f"multiguard.{room}")
    names = getattr(module, "__all__", None) or [name for name in vars(module) if name.endswith("Error")]
    shown = set(re.findall(rf"::: multiguard\.{room}\.(?:\w+\.)?(\w+)\n", PAGE)) | set(re.findall(r"`(\w+)`", PAGE))
    assert set(names) <= shown


def test_the_api_page_shows_nothing_that_is_not_there() -> None:
    for room, name in re.findall(r"::: multiguard\.(\w+)\.(?:\w+\.)?(\w+)\n", PAGE):
        assert hasattr(importlib.import_module(f"multiguard.{room}"), name)


@pytest.mark.parametrize("name", [name for name in multiguard.__all__ if callable(getattr(multiguard, name))])
def test_every_public_name_has_a_docstring(name: str) -> None:
    found = getattr(multiguard, name)
    assert found.__doc__ or name in {"Method", "Averaging"}
