"""Networks by the name of their architecture: the built-in ones, or any of timm's, with or without weights."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import nn

from multiguard.errors import ModelError
from multiguard.io.names import unknown_name
from multiguard.models.classifier import Classifier, ModelOptions
from multiguard.models.config import PRETRAINED
from multiguard.models.networks import DenoisingNetwork, EfficientNetLite, SmallCnn, UNet
from multiguard.models.spec import import_library, summary
from multiguard.models.weight_files import read_hashed_weights

_HALF = (0.5, 0.5, 0.5)  # mean and standard deviation of the built-in networks
_CNN_SIZE = 32
_MAX_WIDTH = 2048
_TIMM_SIZE = _LITE_SIZE = 224
_LITE = re.compile(
    r"(?:(?:pool:(?P<pool>[2-4])\+)?unet:(?P<width>[1-9]\d{0,2})\+)?lite:(?P<variant>[0-4])(?:@(?P<size>[1-9]\d{1,3}))?"
)
_LITE_SIZES = range(32, 1025)
_LITE_FAMILY = ("lite", "unet", "pool")
ARCHITECTURES = (
    "cnn, cnn:WIDTH, lite:0 to lite:4, unet:WIDTH+lite:0 to lite:4, pool:2+unet:WIDTH+lite:2, lite:2@SIZE, or timm:NAME"
)


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network ready to train or to load, and what it expects as input."""

    architecture: str  # how to build it, one of `ARCHITECTURES`
    network: nn.Module  # (B, 3, height, width) to (B, c) logits
    mean: tuple[float, ...]  # per channel, to subtract from pixels in [0, 1]
    std: tuple[float, ...]  # per channel, to divide them by
    image_size: int  # the height and width it was designed for
    fresh: tuple[str, ...] = ()  # the tensors that a given weights file did not fill: the replaced head, the denoiser
    own_head: bool = field(kw_only=True)  # whether weights without label names filled the head: their order is unknown
    code_hash: str | None = None  # sha256 of the user's files that make the network; None where no code does
    weights_hash: str | None = None  # sha256 of the weights file that filled it


def build_backbone(
    architecture: str, classes: int, weights: str | None = None, *, dropout: float = 0.0, size: int | None = None
) -> Backbone:
    """A network of this architecture with one logit per label, its body filled completely from the weights.

    Args:
        architecture: "cnn" or "cnn:WIDTH"; "lite:0" to "lite:4", EfficientNet-Lite; "unet:WIDTH+lite:0" to "lite:4",
            the same behind a denoiser that is trained with it; "pool:2+unet:...", the same on the means of 2 x 2
            pixels, for images of twice the size; each with "@SIZE" behind it, which resizes what EfficientNet-Lite
            gets, noise included; or "timm:NAME".
        classes: The number of labels c.
        weights: A .safetensors or .pth file, "pretrained" to download timm's, or None. A head of another
            shape is left out (`Backbone.fresh`); any other difference raises `ModelError`.
        dropout: The fraction of the head's inputs that a training step drops.
        size: Height and width of the images, for networks that are built for one size; None for the default.
    """
    kind, _, detail = architecture.partition(":")
    if kind == "cnn":
        return _small_cnn(architecture, detail, classes, weights, dropout)
    if kind in _LITE_FAMILY:
        return _lite_backbone(architecture, classes, weights, dropout)
    if kind == "timm" and detail:
        return _timm_backbone(architecture, detail, classes, weights, dropout, size)
    raise ModelError(f"unknown architecture '{architecture}': expected {ARCHITECTURES}")


def input_size(architecture: str) -> int:
    """The height and width that this architecture was designed for, known without building it."""
    kind, _, name = architecture.partition(":")
    if kind in _LITE_FAMILY:
        return _LITE_SIZE * int(_lite_parts(architecture)["pool"] or 1)
    if kind != "timm":
        return _CNN_SIZE
    config = import_library("timm", "timm").get_pretrained_cfg(name)
    return int(config.input_size[-1]) if config is not None else _TIMM_SIZE


@torch.no_grad()
def check_backbone(backbone: Backbone, size: int, labels: int) -> None:
    """Raises `ModelError` unless the network has one score per label for images of this height and width."""
    was_training = backbone.network.training
    try:
        scores = backbone.network.eval()(torch.zeros(1, 3, size, size))
    except Exception as error:  # of the user's own code, too
        hint = f"; try {backbone.image_size}" if backbone.image_size else ""
        raise ModelError(
            f"{backbone.architecture} takes no images of {size}x{size} ({summary(error)}){hint}"
        ) from error
    backbone.network.train(was_training)
    shape = tuple(getattr(getattr(scores, "logits", scores), "shape", ()))
    if shape != (1, labels):
        what = f"returns shape {shape} for one image"
        raise ModelError(f"{backbone.architecture} {what}; the data has {labels} labels, so (1, {labels}) is expected")


def _small_cnn(architecture: str, width: str, classes: int, weights: str | None, dropout: float) -> Backbone:
    if width and not (width.isdecimal() and len(width) < 5 and 0 < int(width) <= _MAX_WIDTH):
        raise ModelError(f"'{architecture}': the width must be an integer from 1 to {_MAX_WIDTH}, as in cnn:32")
    if weights == PRETRAINED:
        raise ModelError("the built-in cnn has no pretrained weights; leave out --weights")
    network = SmallCnn(classes, int(width or 32), dropout)
    fresh, digest = _fill(network, weights, ("head",))
    filled = digest is not None and not fresh
    return Backbone(architecture, network, _HALF, _HALF, _CNN_SIZE, fresh, own_head=filled, weights_hash=digest)


def _lite_parts(architecture: str) -> re.Match[str]:
    """The parts of a name with EfficientNet-Lite: `pool`, the U-Net's `width`, `variant`, and `size` of its input."""
    match = _LITE.fullmatch(architecture)
    if match is None or (match["size"] is not None and int(match["size"]) not in _LITE_SIZES):
        expected = "lite:0 to lite:4, unet:WIDTH+lite:0, pool:2+unet:WIDTH+lite:0, or lite:2@SIZE, SIZE from 32 to 1024"
        raise ModelError(f"unknown architecture '{architecture}': expected {expected}")
    return match


def _lite_backbone(architecture: str, classes: int, weights: str | None, dropout: float) -> Backbone:
    parts = _lite_parts(architecture)
    if weights == PRETRAINED:
        raise ModelError(f"{architecture} has no weights to download; give a file, such as timm's of the same network")
    size, pool = int(parts["size"] or 0) or None, int(parts["pool"] or 1)
    network: nn.Module = EfficientNetLite(classes, int(parts["variant"]), dropout=dropout, size=size)
    fresh, digest = _fill(network, weights, ("classifier",))
    filled = digest is not None and not fresh
    if parts["width"] is not None:
        network = DenoisingNetwork(UNet(int(parts["width"]), pool), network)
        fresh = () if weights is None else ("denoiser", *(f"network.{name}" for name in fresh))
    side = _LITE_SIZE * pool
    return Backbone(architecture, network, _HALF, _HALF, side, fresh, own_head=filled, weights_hash=digest)


def _timm_backbone(
    architecture: str, name: str, classes: int, weights: str | None, dropout: float, size: int | None
) -> Backbone:
    timm = import_library("timm", "timm")
    if not timm.is_model(name):
        raise ModelError(unknown_name("timm model", name, timm.list_models()))
    made: dict[str, object] = {"pretrained": weights == PRETRAINED, "num_classes": classes, "drop_rate": dropout}
    designed = timm.get_pretrained_cfg(name)
    if designed is not None and designed.fixed_input_size and size not in (None, designed.input_size[-1]):
        made["img_size"] = size  # built for one size, and this is another
    try:
        with _offline_without_network() if weights == PRETRAINED else nullcontext():
            network: nn.Module = timm.create_model(name, **made)
    except (OSError, RuntimeError, AssertionError) as error:
        raise ModelError(f"timm cannot build '{name}' ({error}); give a weights file instead") from error
    config: Any = network.pretrained_cfg
    head = config.get("classifier", "head")
    heads = (head,) if isinstance(head, str) else tuple(head)
    fresh, digest = _fill(network, None if weights == PRETRAINED else weights, heads)
    image_size = int(config["input_size"][-1])
    filled = config["num_classes"] == classes if weights == PRETRAINED else digest is not None and not fresh
    mean, std = tuple(config["mean"]), tuple(config["std"])
    return Backbone(architecture, network, mean, std, image_size, fresh, own_head=filled, weights_hash=digest)


@contextmanager
def _offline_without_network() -> Iterator[None]:
    """Where the host of weights has no address, only those that are stored count: it is not asked five times."""
    constants = import_library("huggingface_hub.constants", "timm")
    before = constants.HF_HUB_OFFLINE
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        constants.HF_HUB_OFFLINE = before or not getproxies()  # a proxy may know the address
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _fill(network: nn.Module, file: str | None, heads: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Load every tensor that fits by name and shape; return the head's that do not, and the hash of the file.

    Any other tensor that does not fit raises `ModelError`.
    """
    if file is None:
        return (), None
    path = Path(file)
    wanted, (given, digest) = network.state_dict(), read_hashed_weights(path)
    fits = {name: given[name] for name in wanted if name in given and given[name].shape == wanted[name].shape}
    unmatched = [name for name in wanted if name not in fits and not name.endswith("num_batches_tracked")]
    unmatched += [name for name in given if name not in wanted]
    wrong = [name for name in unmatched if not name.startswith(tuple(f"{head}." for head in heads))]
    if wrong:
        has, needs = (str(tuple(each[wrong[0]].shape)) if wrong[0] in each else "none" for each in (given, wanted))
        what = f"tensor '{wrong[0]}' has shape {has}, and the network needs {needs}"
        raise ModelError(f"{path}: {what} ({len(wrong)} such tensors)")
    network.load_state_dict(fits, strict=False)
    return tuple(name for name in unmatched if name in wanted), digest


def load_network(spec: str, options: ModelOptions) -> Classifier:
    """The classifier of this architecture with every tensor from the weights file; none is left at its random value."""
    labels = options.require_labels(spec)
    if options.weights is None:
        raise ModelError(f"{spec}: give its weights as a .safetensors or .pth file, weights=FILE.")
    backbone = build_backbone(spec, len(labels), str(options.weights))
    if backbone.fresh:
        raise ModelError(
            f"{options.weights} does not fit {spec} with these {len(labels)} labels: its {backbone.fresh[0]!r} has "
            "another shape or is missing; give the labels that the weights were trained for."
        )
    filled = options.fill(output="logits", mean=backbone.mean, std=backbone.std)
    return filled.make_classifier(backbone.network, spec, backbone.weights_hash)
