"""A model folder: model.safetensors and model.json, which together determine everything that voting needs."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import write_atomically
from multiguard.models.backbone import Backbone, build_backbone
from multiguard.models.card import WEIGHTS_FILE, ModelCard, read_card, weights_file, write_card
from multiguard.models.spec import CARD_FILE, parse_spec
from multiguard.models.torch_model import TorchClassifier
from multiguard.models.weight_files import load_weights, read_hashed_weights

_PART = "network."  # before the name of each tensor
MARK = "multiguard-model"  # in the header of the weights: multiguard wrote them


def save_folder(path: Path, card: ModelCard, network: nn.Module) -> ModelCard:
    """Write the folder so that each file is at any moment absent, the old one or the new one, never partial.

    The hash of the weights is filled in on the card that is returned.

    >>> from multiguard.certify import Gaussian
    >>> card = ModelCard("cnn:2", ("cat", "dog"), (16, 16), (0.5,), (0.5,), Gaussian(0.25))
    >>> card = save_folder(out, card, build_backbone("cnn:2", 2).network)
    >>> read_card(out) == card, load_folder(out)(torch.zeros(1, 3, 16, 16)).shape
    (True, torch.Size([1, 2]))
    """
    state = network.state_dict().items()
    tensors = {f"{_PART}{name}": tensor.detach().cpu().clone().contiguous() for name, tensor in state}
    data = save(tensors, metadata={"format": MARK})
    card = replace(card, weights_sha256=hashlib.sha256(data).hexdigest())
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / WEIGHTS_FILE, lambda file: file.write(data))
    write_card(path, card)
    return card


def load_folder(path: Path | str, network: nn.Module | None = None) -> TorchClassifier:
    """The classifier in the folder, in eval mode; its weights have the hash that the card records.

    Args:
        path: The folder.
        network: The network that the user's code makes, where the folder was trained from code; no folder runs any.
    """
    card, backbone = _read_folder(Path(path), network=network)
    return card.classifier(backbone.network).module().eval().requires_grad_(False)


def load_backbone(path: Path, *, dropout: float = 0.0, network: nn.Module | None = None) -> Backbone:
    """The network of a model folder, for further training with this dropout before its head."""
    return _read_folder(path, dropout, network)[1]


def _read_folder(path: Path, dropout: float = 0.0, network: nn.Module | None = None) -> tuple[ModelCard, Backbone]:
    """The card and the network of the folder, whose weights have the hash that the card records."""
    card, file = read_card(path), weights_file(path)
    tensors, digest = read_hashed_weights(file)
    if digest != card.weights_sha256:
        raise ModelError(f"{file}: its sha256 is not the one in {CARD_FILE}, so the files do not match; train again")
    made = network or _build_network(path, card, tensors, dropout)
    load_weights(made, {name.removeprefix(_PART): tensor for name, tensor in tensors.items()}, str(path))
    return card, Backbone(card.architecture, made, card.mean, card.std, card.image_size[0], own_head=False)


def _build_network(path: Path, card: ModelCard, tensors: Mapping[str, Tensor], dropout: float) -> nn.Module:
    """The network of the card's architecture, before its weights; code that the card names is not run."""
    if parse_spec(card.architecture).kind == "code":
        raise ModelError(
            f"{path} was trained from {card.architecture}, which is code, and no code runs because a file names it; if "
            f"you trust it, name it yourself: --model {card.architecture} --weights {path}"
        )
    _check_memory(path, card, tensors)
    return build_backbone(card.architecture, len(card.label_names), dropout=dropout, size=card.image_size[0]).network


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
