"""The networks that training starts from: the built-in one, or any of timm's, with or without weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.names import unknown_name
from multiguard.models.cnn import SmallCnn
from multiguard.models.extras import require
from multiguard.models.weights import read_weights

PRETRAINED = "pretrained"
_HALVES = (0.5, 0.5, 0.5)
_CNN_SIZE = 32
_WIDEST = 2048
_TIMM_SIZE = 224


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network ready to train or to load, and what its input must be.

    Attributes:
        architecture: How to build it again: "cnn", "cnn:WIDTH" or "timm:NAME".
        network: (B, 3, height, width) to (B, c) logits.
        mean: What it wants subtracted from pixels in [0, 1], a channel.
        std: What it wants them divided by.
        image_size: The height and width it is at home with.
        fresh: Its tensors that no weights file filled, where one was given: the replaced head.
    """

    architecture: str
    network: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_size: int
    fresh: tuple[str, ...] = ()


def build_backbone(
    architecture: str, classes: int, weights: str | None = None, *, dropout: float = 0.0, size: int | None = None
) -> Backbone:
    """A network of this architecture with one logit a label, its body filled from the weights in full.

    Args:
        architecture: "cnn", "cnn:WIDTH" or "timm:NAME".
        classes: The number of labels c.
        weights: A .safetensors or .pth file, "pretrained" to download timm's, or None. A head of another
            shape is left out (`Backbone.fresh`); any other difference raises `ModelError`.
        dropout: The share of the head's inputs that a training step leaves out.
        size: Height and width of the images to come, for networks that are built for one size; None for their own.
    """
    kind, _, detail = architecture.partition(":")
    if kind == "cnn":
        return _small_cnn(architecture, detail, classes, weights, dropout)
    if kind == "timm" and detail:
        return _timm_backbone(architecture, detail, classes, weights, dropout, size)
    raise ModelError(f"unknown architecture '{architecture}': expected cnn, cnn:WIDTH or timm:NAME")


def input_size(architecture: str) -> int:
    """The height and width that this architecture is at home with, known without building it."""
    kind, _, name = architecture.partition(":")
    if kind != "timm":
        return _CNN_SIZE
    config = require("timm", "timm").get_pretrained_cfg(name)
    return int(config.input_size[-1]) if config is not None else _TIMM_SIZE


@torch.no_grad()
def require_size(backbone: Backbone, size: int) -> None:
    """Pass only if the network takes images of this height and width; else raise `ModelError`."""
    was_training = backbone.network.training
    try:
        backbone.network.eval()(torch.zeros(1, 3, size, size))
    except (AssertionError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"{backbone.architecture} takes no images of {size}x{size} ({reason}); try {backbone.image_size}"
        ) from error
    backbone.network.train(was_training)


def _small_cnn(architecture: str, detail: str, classes: int, weights: str | None, dropout: float) -> Backbone:
    if detail and not (detail.isdecimal() and len(detail) < 5 and 0 < int(detail) <= _WIDEST):
        raise ModelError(f"'{architecture}': the width must be a whole number above 0, {_WIDEST} at most, as in cnn:32")
    if weights == PRETRAINED:
        raise ModelError("the built-in cnn has no pretrained weights; leave out --weights")
    network = SmallCnn(classes, int(detail), dropout) if detail else SmallCnn(classes, dropout=dropout)
    fresh = () if weights is None else _fill(network, Path(weights), ("head",))
    return Backbone(architecture, network, _HALVES, _HALVES, _CNN_SIZE, fresh)


def _timm_backbone(
    architecture: str, name: str, classes: int, weights: str | None, dropout: float, size: int | None
) -> Backbone:
    timm = require("timm", "timm")
    if not timm.is_model(name):
        raise ModelError(unknown_name("timm model", name, timm.list_models()))
    try:
        network: nn.Module = timm.create_model(
            name, pretrained=weights == PRETRAINED, num_classes=classes, drop_rate=dropout, **_built_for(name, size)
        )
    except (OSError, RuntimeError, AssertionError) as error:
        raise ModelError(f"timm could not make '{name}' ({error}); give a weights file instead") from error
    config: Any = network.pretrained_cfg
    heads = config.get("classifier", "head")
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    fresh = () if weights in (None, PRETRAINED) else _fill(network, Path(weights), heads)
    own = int(config["input_size"][-1])
    return Backbone(architecture, network, tuple(config["mean"]), tuple(config["std"]), own, fresh)


def _built_for(name: str, size: int | None) -> dict[str, int]:
    """The size as timm takes it, for a network that must know it and is at home with another."""
    config = require("timm", "timm").get_pretrained_cfg(name)
    fixed = config is not None and config.fixed_input_size and size not in (None, config.input_size[-1])
    return {"img_size": size} if fixed and size is not None else {}


def _fill(network: nn.Module, path: Path, heads: tuple[str, ...]) -> tuple[str, ...]:
    """Load every tensor whose name and shape fit; return the head's that did not, refuse any other."""
    wanted, given = network.state_dict(), read_weights(path)
    fits = {name: given[name] for name in wanted if name in given and given[name].shape == wanted[name].shape}
    left = [name for name in wanted if name not in fits and not name.endswith("num_batches_tracked")]
    left += [name for name in given if name not in wanted]
    strangers = [name for name in left if not name.startswith(tuple(f"{head}." for head in heads))]
    if strangers:
        raise ModelError(f"{path}: {_difference(strangers[0], wanted, given)} ({len(strangers)} such tensors)")
    network.load_state_dict(fits, strict=False)
    return tuple(name for name in left if name in wanted)


def _difference(name: str, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    if name not in given:
        return f"no tensor '{name}', which the network needs"
    if name not in wanted:
        return f"a tensor '{name}' that the network has no place for"
    return f"tensor '{name}' has shape {tuple(given[name].shape)} where {tuple(wanted[name].shape)} is needed"
