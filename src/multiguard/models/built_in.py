"""The models that the package contains: what was measured of each, and its card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiguard.errors import ModelError
from multiguard.io.names import unknown_name
from multiguard.io.records import decode_json
from multiguard.models import spec

MEASURED_FILE, TEXT_FILE = "measured.json", "MODEL_CARD.md"


def read_measured(name: str) -> Mapping[str, Any]:
    """What was measured of a built-in model, on images that trained nothing; `benchmarks/release.py` declares it."""
    return decode_json((_folder(name) / MEASURED_FILE).read_bytes(), dict[str, Any])


def model_card(name: str) -> str:
    """The card of a built-in model, as Markdown: data, recipe, scores, limits, licence."""
    return (_folder(name) / TEXT_FILE).read_text(encoding="utf-8")


def weights_bytes(name: str) -> int:
    """The size of its weights file."""
    return (_folder(name) / "model.safetensors").stat().st_size


def _folder(name: str) -> Path:
    if name not in spec.built_in_names():
        raise ModelError(unknown_name("built-in model", name, spec.built_in_names()))
    return spec.BUILT_IN / name
