"""What every test may need: the real images where they are, and a timm that imports beside a CPU torch."""

import importlib.util
from pathlib import Path

import pytest

from multiguard.io import files

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"

if importlib.util.find_spec("torch") is not None:  # `make lowest` runs without it
    from multiguard.models.weight_files import declare_absent_operators

    declare_absent_operators()  # for tests that import timm or transformers themselves


def _real(path: str) -> Path:
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"real data absent: shared/{path}")
    return found


@pytest.fixture
def coco_root() -> Path:
    return _real("data/coco2014")


@pytest.fixture
def voc_root() -> Path:
    return _real("data/voc2007")


@pytest.fixture
def lite0_weights() -> Path:
    return _real("weights/tf_efficientnet_lite0.safetensors")


@pytest.fixture
def replace_after_reading(monkeypatch):
    """Gives a function after which a file has another content from the second time on that it is opened."""

    def plan(path, content):
        opened, first = files.open_regular, [True]

        def open_then_replace(given):
            if given == path and not first:
                path.write_bytes(content)
            if given == path:
                first.clear()
            return opened(given)

        monkeypatch.setattr(files, "open_regular", open_then_replace)

    return plan
