"""`timm:NAME`: an architecture of timm with the weights of a file."""

from typing import Any

from torch import nn

from multiguard.errors import ModelError
from multiguard.files import file_hash
from multiguard.models.classifier import Classifier
from multiguard.models.extras import require
from multiguard.models.options import ModelOptions
from multiguard.models.weights import read_weights


def load_timm(name: str, options: ModelOptions) -> Classifier:
    """The classifier of this timm name, every tensor taken from the weights file and none left at random."""
    spec = f"timm:{name}"
    labels = options.need_labels(spec)
    if options.weights is None:
        raise ModelError(f"{spec}: give its weights as a .safetensors or .pth file, weights=FILE.")
    network = _build(name, len(labels))
    _fill(network, options, spec)
    config: Any = network.pretrained_cfg
    return Classifier(
        network,
        labels,
        output=options.output or "logits",
        mean=options.mean or config["mean"],
        std=options.std or config["std"],
        image_size=options.image_size,
        name=options.name or spec,
        weights_hash=file_hash(options.weights),
    )


def _build(name: str, labels: int) -> nn.Module:
    timm = require("timm", "timm")
    if not timm.is_model(name):
        close = ", ".join(timm.list_models(f"*{name.split('.')[0]}*")[:5]) or "none that is close"
        raise ModelError(f"timm:{name}: timm has no such model; it has {close}.")
    network: nn.Module = timm.create_model(name, pretrained=False, num_classes=labels)
    return network


def _fill(network: nn.Module, options: ModelOptions, spec: str) -> None:
    assert options.weights is not None
    try:
        network.load_state_dict(read_weights(options.weights))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"{options.weights} does not fit {spec} with these labels: {reason}") from error
