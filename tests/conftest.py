"""What every test may need: the real images where they are, and a timm that imports beside a CPU torch."""

from pathlib import Path

import pytest

from multiguard.models.torchvision_operators import declare_absent_operators

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"

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
def ffdnet_weights() -> Path:
    return _real("weights/ffdnet_color.pth")


@pytest.fixture
def lite0_weights() -> Path:
    return _real("weights/tf_efficientnet_lite0.safetensors")
