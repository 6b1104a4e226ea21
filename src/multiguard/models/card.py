"""model.json of a model folder: all that voting needs to know, except for the weights; read without torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from multiguard.certify.noise import Noise, NoiseField, as_noise
from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, read_regular, write_atomically
from multiguard.io.records import convert, decode_json
from multiguard.models.classifier import Classifier, Output
from multiguard.models.spec import CARD_FILE

FORMAT = 4
WEIGHTS_FILE = "model.safetensors"
_MAX_CARD = 1 << 26  # bytes; the history of a long training takes less than one in a hundred of them
_MAX_SIDE = 1 << 14
_CHANNELS = 3


@dataclass(frozen=True)
class ModelCard:
    """The content of model.json, which describes the weights."""

    architecture: str  # how to build the network: what `build_backbone` takes, or the user's module:function
    label_names: tuple[str, ...]  # in the order of the scores
    image_size: tuple[int, int]  # (height, width) of its input
    mean: tuple[float, ...]  # per channel, subtracted inside the classifier, after the noise
    std: tuple[float, ...]  # per channel, divided by inside the classifier
    noise: NoiseField | None  # what it was trained for: vote with this one; None for no noise
    output: Output = "logits"  # the kind of its scores
    training: Mapping[str, Any] = field(default_factory=dict)  # how it was trained: dataset, recipe, versions
    history: tuple[Mapping[str, Any], ...] = ()  # one record per epoch
    weights_sha256: str = ""  # of model.safetensors

    def __post_init__(self) -> None:
        if self.noise is not None:
            object.__setattr__(self, "noise", as_noise(self.noise))

    def classifier(self, network: Any) -> Classifier:
        """The network as the base classifier that this card describes."""
        return Classifier(
            network,
            self.label_names,
            output=self.output,
            mean=self.mean,
            std=self.std,
            image_size=self.image_size,
            name=self.architecture,
            weights_hash=self.weights_sha256 or None,
            trained_noise=self.trained_noise,
        )

    @property
    def trained_noise(self) -> str | None:
        """The noise on the training images, "none" for none; None where no training is recorded."""
        recipe = self.training.get("recipe", {})
        noise = recipe.get("noise") if recipe.get("epochs") else None
        largest = recipe.get("sigma_max")
        return None if not isinstance(noise, str) else noise if largest is None else f"{noise} to {largest:g}"

    def is_for(self, noise: Noise) -> bool:
        """Whether to vote with this noise: it is the card's, or Gaussian with a sigma among those in training."""
        recipe = self.training.get("recipe", {})
        if self.noise in (None, noise) or noise.sigma is None or recipe.get("sigma_max") is None:
            return self.noise in (None, noise)
        return bool((as_noise(recipe["noise"]).sigma or 0) <= noise.sigma <= recipe["sigma_max"])


def write_card(path: Path, card: ModelCard) -> None:
    """Write the folder's model.json, which `read_card` reads."""
    content = {"format": FORMAT, **asdict(card), "noise": None if card.noise is None else str(card.noise)}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    write_atomically(path / CARD_FILE, lambda file: file.write(f"{text}\n".encode()))


def read_card(path: Path) -> ModelCard:
    """The folder's model.json; a missing, foreign or damaged one raises `ModelError`."""
    file = path / CARD_FILE
    try:
        content = decode_json(read_regular(file, _MAX_CARD), dict[str, Any])
        if content.pop("format", None) != FORMAT:
            raise ModelError(f"{file}: not a model card of format {FORMAT}; was it written by another version?")
        card = convert(content, ModelCard)
        _check_card(card)
    except FileNotFoundError:
        raise ModelError(f"{file}: no such file; expected a model folder, as `multiguard train` writes it") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: not readable as a model card ({error}); train again to write it") from error
    return card


def _check_card(card: ModelCard) -> None:
    """Raises `ValueError` unless the card's values are possible for a classifier."""
    if not card.label_names:
        raise ValueError("no label is named")
    if not all(0 < side <= _MAX_SIDE for side in card.image_size):
        raise ValueError(f"the image size {card.image_size} is outside 1 .. {_MAX_SIDE}")
    if {len(card.mean), len(card.std)} - {1, _CHANNELS} or not all(value > 0 for value in card.std):
        raise ValueError(f"mean and std must have 1 or {_CHANNELS} values, and std above 0")
    if not isinstance(card.training.get("recipe", {}), dict):
        raise ValueError("training.recipe is not an object")
    if not isinstance(card.training.get("recipe", {}).get("sigma_max"), int | float | None):
        raise ValueError("training.recipe.sigma_max is not a number")


def folder_checksum(folder: Path | str) -> str:
    """The hash of the folder's weights, before it is taken for a model."""
    read_card(Path(folder))
    return file_checksum(weights_file(Path(folder)))


def weights_file(path: Path) -> Path:
    """The weights of a model folder, which must have them."""
    file = path / WEIGHTS_FILE
    if not file.is_file():
        raise ModelError(f"{file}: no such file; the model folder is incomplete, train again")
    return file
