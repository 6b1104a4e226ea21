"""A model folder: model.safetensors beside model.json, which together determine everything that voting needs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from multiguard.certify.noise import NoiseField, as_noise
from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, read_regular, write_atomically
from multiguard.io.records import convert, decode_json
from multiguard.models.backbone import Backbone, build_backbone
from multiguard.models.classifier import Classifier, Output
from multiguard.models.denoiser import FFDNet, denoise_first, denoiser_sigma
from multiguard.models.spec import CARD_FILE, parse_spec
from multiguard.models.weight_files import load_weights, read_hashed_weights

FORMAT = 3
WEIGHTS_FILE = "model.safetensors"
MARK = "multiguard-model"  # in the header of the weights: multiguard wrote them
_MAX_CARD = 1 << 26  # bytes; the history of a long training takes less than one in a hundred of them
_MAX_SIDE = 1 << 14
_CHANNELS = 3


@dataclass(frozen=True)
class ModelCard:
    """The content of model.json, which describes the weights beside it."""

    architecture: str  # how to build the network: what `build_backbone` takes, or the user's module:function
    label_names: tuple[str, ...]  # in the order of the scores
    image_size: tuple[int, int]  # (height, width) of its input
    mean: tuple[float, ...]  # per channel, subtracted inside the classifier, after the noise
    std: tuple[float, ...]  # per channel, divided by inside the classifier
    noise: NoiseField | None  # what it was trained for: vote with this one; None for no noise
    denoiser: bool = False  # whether an FFDNet for this noise, a Gaussian one, comes before the network
    output: Output = "logits"  # the kind of its scores
    training: Mapping[str, Any] = field(default_factory=dict)  # how it was trained: dataset, recipe, versions
    history: tuple[Mapping[str, Any], ...] = ()  # one record per epoch
    weights_sha256: str = ""  # of model.safetensors

    def __post_init__(self) -> None:
        if self.noise is not None:
            object.__setattr__(self, "noise", as_noise(self.noise))

    def classifier(self, network: nn.Module) -> Classifier:
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
        """The noise on the training images, "none" for none; None where no training is recorded.

        It differs from `noise`, the noise to vote with: behind a denoiser, training may see clean images.
        """
        recipe = self.training.get("recipe", {})
        noise = recipe.get("noise") if recipe.get("epochs") else None
        return noise if isinstance(noise, str) else None


def save_folder(path: Path, card: ModelCard, network: nn.Module, denoiser: FFDNet | None = None) -> ModelCard:
    """Write the folder so that each file is at any moment absent, the old one or the new one, never partial.

    The denoiser's weights go into the file of the network's, whose hash is filled in on the card that is returned.

    >>> from multiguard.certify import Gaussian
    >>> card = ModelCard("cnn:2", ("cat", "dog"), (16, 16), (0.5,), (0.5,), Gaussian(0.25))
    >>> card = save_folder(out, card, build_backbone("cnn:2", 2).network)
    >>> read_card(out) == card, load_folder(out)(torch.zeros(1, 3, 16, 16)).shape
    (True, torch.Size([1, 2]))
    """
    parts = {"network": network} if denoiser is None else {"network": network, "denoiser": denoiser}
    tensors = {
        f"{prefix}.{name}": tensor.detach().cpu().clone().contiguous()
        for prefix, module in parts.items()
        for name, tensor in module.state_dict().items()
    }
    data = save(tensors, metadata={"format": MARK})
    card = replace(card, denoiser=denoiser is not None, weights_sha256=hashlib.sha256(data).hexdigest())
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / WEIGHTS_FILE, lambda file: file.write(data))
    write_card(path, card)
    return card


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
        raise ValueError(f"mean and std must have 1 or {_CHANNELS} values, those of std above 0")
    if card.denoiser:
        denoiser_sigma(card.noise)
    if not isinstance(card.training.get("recipe", {}), dict):
        raise ValueError("training.recipe is not an object")


def load_folder(path: Path | str, network: nn.Module | None = None) -> Classifier:
    """The classifier in the folder, in eval mode; its weights have the hash that the card records.

    Args:
        path: The folder.
        network: The network that the user's code makes, where the folder was trained from code; no folder runs any.
    """
    card, backbone, tensors = _read_folder(Path(path), network=network)
    classifier = card.classifier(backbone.network)
    if card.denoiser:
        denoiser = FFDNet()
        _load_part(denoiser, tensors, "denoiser", Path(path))
        classifier = denoise_first(classifier, denoiser, denoiser_sigma(card.noise))
        classifier.weights_hash = card.weights_sha256
    return classifier.eval().requires_grad_(False)


def load_backbone(path: Path, *, dropout: float = 0.0, network: nn.Module | None = None) -> Backbone:
    """The network of a model folder without its denoiser, for further training with this dropout before its head."""
    return _read_folder(path, dropout, network)[1]


def _read_folder(
    path: Path, dropout: float = 0.0, network: nn.Module | None = None
) -> tuple[ModelCard, Backbone, Mapping[str, Tensor]]:
    """The card, the network, and all tensors of the folder, whose weights have the hash that the card records."""
    card, file = read_card(path), _weights_file(path)
    tensors, digest = read_hashed_weights(file)
    if digest != card.weights_sha256:
        raise ModelError(f"{file}: its sha256 is not the one in {CARD_FILE}, so the files do not match; train again")
    made = network or _build_network(path, card, tensors, dropout)
    _load_part(made, tensors, "network", path)
    size = card.image_size[0]
    backbone = Backbone(card.architecture, made, card.mean, card.std, size, own_head=False)
    return card, backbone, tensors


def _build_network(path: Path, card: ModelCard, tensors: Mapping[str, Tensor], dropout: float) -> nn.Module:
    """The network of the card's architecture, before its weights; code that the card names is not run."""
    if parse_spec(card.architecture).kind == "code":
        raise ModelError(
            f"{path} was trained from {card.architecture}, which is code, and no code runs because a file names it; if "
            f"you trust it, name it yourself: --model {card.architecture} --weights {path}"
        )
    _check_memory(path, card, tensors)
    return build_backbone(card.architecture, len(card.label_names), dropout=dropout, size=card.image_size[0]).network


def folder_checksum(folder: Path | str) -> str:
    """The hash of the folder's weights, before it is taken for a model."""
    read_card(Path(folder))
    return file_checksum(_weights_file(Path(folder)))


def _weights_file(path: Path) -> Path:
    file = path / WEIGHTS_FILE
    if not file.is_file():
        raise ModelError(f"{file}: no such file; the model folder is incomplete, train again")
    return file


def _load_part(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str, path: Path) -> None:
    part = {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}
    load_weights(module, part, str(path))


def _check_memory(path: Path, card: ModelCard, tensors: Mapping[str, Tensor]) -> None:
    """Raises before memory is allocated for a network with more weights than the file contains."""
    stored = sum(tensor.numel() for tensor in tensors.values())
    try:
        with torch.device("meta"):
            network = build_backbone(card.architecture, len(card.label_names), size=card.image_size[0]).network
    except (NotImplementedError, RuntimeError):  # some of timm's networks read values while they are built
        return
    needed = sum(tensor.numel() for tensor in network.state_dict().values())
    if needed > stored:
        reason = f"{card.architecture}: it needs {needed:,} numbers, and the file has {stored:,}"
        raise ModelError(f"{path}: the weights do not fit the card's architecture, {reason}")
