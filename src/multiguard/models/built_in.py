"""The models that the package contains: what was measured of each, and its card."""

from dataclasses import dataclass
from pathlib import Path

from multiguard.errors import ModelError
from multiguard.io.names import unknown_name
from multiguard.io.records import decode_json
from multiguard.models import spec

MEASURED_FILE, TEXT_FILE = "measured.json", "MODEL_CARD.md"


@dataclass(frozen=True)
class MeasuredLabel:
    """How often one label is certified on its own, on the images that have it."""

    name: str
    images: int
    certified: tuple[float, ...]  # at each of the radii


@dataclass(frozen=True)
class Measured:
    """The content of measured.json: what a release measured of these weights, on images that trained nothing."""

    weights_sha256: str  # of the weights that were measured
    parameters: int
    task: str
    licence: str
    labels: int
    sigma: float
    size: int  # height and width of the images, where noise and radii are measured
    data: str  # the images
    images: int
    map_clean: float  # mean average precision without noise
    map_noisy: float  # and on one noisy copy of each image
    k: int
    k_prime: int
    draws: int
    alpha: float
    method: str
    radii: tuple[float, ...]
    recall: tuple[float, ...]  # certified recall at each of the radii, the mean over images
    label_method: str  # the method of the labels' own radii
    per_label: tuple[MeasuredLabel, ...]  # those that some image has

    def recall_at(self, radius: float) -> float:
        """The certified recall at one of the radii."""
        return self.recall[self.radii.index(radius)]


def read_measured(name: str) -> Measured:
    """What was measured of a built-in model."""
    return decode_json((_folder(name) / MEASURED_FILE).read_bytes(), Measured)


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
