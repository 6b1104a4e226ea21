"""A model folder: model.safetensors beside model.json, which together say everything that voting needs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, write_atomically
from multiguard.io.records import convert, decode_json
from multiguard.models.backbone import Backbone, build_backbone
from multiguard.models.classifier import Classifier, Output
from multiguard.models.denoiser import FFDNet, denoise_first
from multiguard.models.weights import read_weights

FORMAT = 1
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "model.json"
_LARGEST_SIDE = 1 << 14
_CHANNELS = 3


@dataclass(frozen=True)
class ModelCard:
    """What model.json says of the weights beside it.

    Attributes:
        architecture: How to build the network: "cnn", "cnn:WIDTH" or "timm:NAME".
        label_names: The c label names, in the order of the scores.
        image_size: (height, width) of its input.
        mean: Subtracted inside the classifier, a channel, after the noise.
        std: Divided by inside the classifier.
        sigma: The noise it was trained for: vote with this one.
        denoiser: Whether an FFDNet told this sigma stands in front of the network.
        output: What the scores are.
        training: How it was made: dataset, recipe, versions.
        history: One record an epoch.
        weights_sha256: The hash of model.safetensors.
    """

    architecture: str
    label_names: tuple[str, ...]
    image_size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sigma: float
    denoiser: bool = False
    output: Output = "logits"
    training: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    weights_sha256: str = ""

    def classifier(self, network: nn.Module) -> Classifier:
        """The base classifier that this card describes, around its network."""
        return Classifier(
            network,
            self.label_names,
            output=self.output,
            mean=self.mean,
            std=self.std,
            image_size=self.image_size,
            name=self.architecture,
            weights_hash=self.weights_sha256 or None,
            trained_sigma=self.trained_sigma,
        )

    @property
    def trained_sigma(self) -> float | None:
        """Deviation of the noise on the training images; None where no training is on record.

        Not `sigma`, the noise to vote with: behind a denoiser, training sees clean images.
        """
        recipe = self.training.get("recipe", {})
        trained = recipe.get("sigma") if recipe.get("epochs") else None
        return float(trained) if isinstance(trained, int | float) else None


def save_folder(path: Path, card: ModelCard, network: nn.Module, denoiser: FFDNet | None = None) -> ModelCard:
    """Write the folder so that each file is at any moment absent, the old one or the new one; never half.

    Args:
        path: The folder, made if need be.
        card: Its hash is filled in here.
        network: The network of the card's architecture.
        denoiser: What stands in front of it; its weights go into the same file.
    """
    parts = {"network": network} if denoiser is None else {"network": network, "denoiser": denoiser}
    data = save(_named_tensors(parts))
    digest = hashlib.sha256(data).hexdigest()
    card = replace(card, denoiser=denoiser is not None, weights_sha256=digest)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / WEIGHTS_FILE, lambda file: file.write(data))
    save_card(path, card)
    return card


def save_card(path: Path, card: ModelCard) -> None:
    """Write model.json alone, as after an epoch that left the weights as they were."""
    text = json.dumps({"format": FORMAT, **asdict(card)}, indent=1, ensure_ascii=False)
    write_atomically(path / CARD_FILE, lambda file: file.write(f"{text}\n".encode()))


def read_card(path: Path) -> ModelCard:
    """What the folder's model.json says; a missing, foreign or damaged one raises `ModelError`."""
    file = path / CARD_FILE
    try:
        found = decode_json(file.read_bytes(), dict[str, Any])
    except FileNotFoundError:
        raise ModelError(f"{file}: no such file; expected a model folder, as `multiguard train` writes it") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: not readable as JSON ({error})") from error
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise ModelError(f"{file}: not a model card of format {FORMAT}; made by another version?")
    try:
        card = convert(found, ModelCard)
        _check_card(card)
    except ValueError as error:
        raise ModelError(f"{file}: not a whole model card ({error})") from error
    return card


def load_folder(path: Path | str) -> Classifier:
    """The classifier in the folder, in eval mode, its weights proved to be those that the card speaks of."""
    path = Path(path)
    card = read_card(path)
    tensors = _proved_tensors(path, card)
    backbone = _filled_backbone(path, card, tensors)
    classifier = card.classifier(backbone.network)
    if card.denoiser:
        denoiser = FFDNet()
        _load_part(denoiser, tensors, "denoiser", path)
        classifier = denoise_first(classifier, denoiser, card.sigma)
        classifier.weights_hash = card.weights_sha256
    return classifier.eval().requires_grad_(False)


def load_backbone(path: Path, *, dropout: float = 0.0) -> Backbone:
    """The network of a model folder without what stood in front of it, to train on or to denoise for.

    Args:
        path: The model folder.
        dropout: The share of the head's inputs that a training step leaves out from now on.
    """
    card = read_card(path)
    return _filled_backbone(path, card, _proved_tensors(path, card), dropout)


def _filled_backbone(path: Path, card: ModelCard, tensors: Mapping[str, Tensor], dropout: float = 0.0) -> Backbone:
    _refuse_larger(path, card, tensors)
    backbone = build_backbone(card.architecture, len(card.label_names), dropout=dropout, size=card.image_size[0])
    _load_part(backbone.network, tensors, "network", path)
    return replace(backbone, mean=card.mean, std=card.std, image_size=card.image_size[0])


def _proved_tensors(path: Path, card: ModelCard) -> dict[str, Tensor]:
    file = path / WEIGHTS_FILE
    if not file.is_file():
        raise ModelError(f"{file}: no such file; the model folder is incomplete")
    if file_checksum(file) != card.weights_sha256:
        raise ModelError(
            f"{file}: its sha256 is not the one in {CARD_FILE}; the folder's files do not match; train again to mend it"
        )
    return read_weights(file)


def _named_tensors(parts: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    return {
        f"{prefix}.{name}": tensor.detach().cpu().clone().contiguous()
        for prefix, module in parts.items()
        for name, tensor in module.state_dict().items()
    }


def _load_part(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str, path: Path) -> None:
    ours = {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}
    try:
        module.load_state_dict(ours)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{path}: the weights do not fit the card's architecture ({reason})") from error


def _refuse_larger(path: Path, card: ModelCard, tensors: Mapping[str, Tensor]) -> None:
    """Raises before memory is taken for a network with more weights than the file holds."""
    held = sum(tensor.numel() for tensor in tensors.values())
    try:
        with torch.device("meta"):
            built = build_backbone(card.architecture, len(card.label_names), size=card.image_size[0])
    except (NotImplementedError, RuntimeError):  # some of timm's networks look at numbers while they are built
        return
    needed = sum(tensor.numel() for tensor in built.network.state_dict().values())
    if needed > held:
        raise ModelError(
            f"{path}: the weights do not fit the card's architecture, {card.architecture}: it has {needed:,} numbers, "
            f"and the file holds {held:,}"
        )


def _check_card(card: ModelCard) -> None:
    """Raises `ValueError` unless the card's numbers can be those of a classifier."""
    if not card.label_names:
        raise ValueError("no label is named")
    if not all(0 < side <= _LARGEST_SIDE for side in card.image_size):
        raise ValueError(f"the image size {card.image_size} lies outside 1 .. {_LARGEST_SIDE}")
    if {len(card.mean), len(card.std)} - {1, _CHANNELS} or not all(value > 0 for value in card.std):
        raise ValueError(f"mean and std must be one number or {_CHANNELS}, those of std above 0")
    if card.sigma < 0:
        raise ValueError(f"sigma is {card.sigma}, below 0")
    if not isinstance(card.training.get("recipe", {}), dict):
        raise ValueError("training.recipe is no set of named values")
