"""Hugging Face networks to train: from a folder with another head, and back from a model folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.models.backbone import Backbone
from multiguard.models.classifier import ModelOptions
from multiguard.models.huggingface import (
    MULTI_LABEL,
    build_model,
    find_processor,
    read_config,
    read_model,
    stored_size,
)
from multiguard.models.huggingface_config import check_config

HF = "hf"  # the architecture of a model folder whose card holds the config
_PLAIN = ((0.0,), (1.0,))  # mean and standard deviation that change nothing


def hf_image_size(folder: str) -> int:
    """The height and width of the images that a folder's network takes."""
    path, spec = Path(folder), f"hf:{folder}"
    size = find_processor(path, read_config(path, spec), ModelOptions(), spec).image_size
    if size is None or size[0] != size[1]:
        raise ModelError(f"{spec} takes images of {size or 'an unknown size'}; give a square one: --size")
    return size[0]


def hf_backbone(folder: str, labels: Sequence[str]) -> Backbone:
    """The folder's network with one logit per label; its head is kept where it has the same labels, in any order."""
    path, spec = Path(folder), f"hf:{folder}"
    config = read_config(path, spec)
    processor = find_processor(path, config, ModelOptions(), spec)
    if processor.flipped:
        raise ModelError(f"{spec} takes blue first, which training does not support.")
    renamed = _with_labels(config, labels)
    model, wrong = read_model(path, renamed, spec, ignore_mismatched_sizes=True)
    own, head = hf_labels(config), _head_names(model, renamed, labels, path)
    same = len(set(own)) == len(own) and set(own) == set(labels)
    fresh = () if same else head
    unfilled = sorted(text for name, text in wrong.items() if name not in fresh)
    if unfilled:
        what = f"{unfilled[0]} ({len(unfilled)} in all)"
        raise ModelError(f"{spec}: its safetensors lack, or have in another shape, {what}.")
    if same:
        _reorder(model, head, [own.index(name) for name in labels])
    else:
        _reset(model, head)
    size = processor.image_size or (0, 0)
    mean, std = processor.mean or _PLAIN[0], processor.std or _PLAIN[1]
    return Backbone(HF, model, mean, std, size[0], fresh, own_head=False, config=renamed)


def build_hf(config: Mapping[str, Any], tensors: Mapping[str, Tensor], spec: str) -> nn.Module:
    """The network of a model folder's card, no larger than the tensors beside it."""
    check_config(dict(config), spec)
    size = (sum(tensor.numel() for tensor in tensors.values()), len(tensors))
    network: nn.Module = build_model(dict(config), size, spec)
    return network


def _with_labels(config: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """The config of the same network for these labels."""
    kept = {name: value for name, value in config.items() if name not in ("num_labels", "label2id", "id2label")}
    if config["model_type"] == "timm_wrapper":
        return {**kept, "problem_type": MULTI_LABEL, "num_classes": len(labels), "label_names": list(labels)}
    names = {str(index): name for index, name in enumerate(labels)}
    numbers = {name: index for index, name in enumerate(labels)}
    return {**kept, "problem_type": MULTI_LABEL, "id2label": names, "label2id": numbers}


def hf_labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The label names that a folder's config gives, in the order of the scores; none where it gives no names."""
    names = config.get("label_names") if config.get("model_type") == "timm_wrapper" else config.get("id2label")
    if isinstance(names, dict) and all(index.isdecimal() for index in names):
        names = [names[index] for index in sorted(names, key=int)]
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _head_names(model: nn.Module, config: dict[str, Any], labels: Sequence[str], path: Path) -> tuple[str, ...]:
    """The tensors whose shape depends on the number of labels."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    with torch.device("meta"):
        more = build_model(_with_labels(config, [*labels, "one more"]), stored_size(path), f"hf:{path}")
    return tuple(name for name, tensor in more.state_dict().items() if shapes.get(name) != tensor.shape)


@torch.no_grad()
def _reorder(model: nn.Module, names: Sequence[str], order: list[int]) -> None:
    """Put the rows of these tensors, one per label, into another order."""
    tensors = model.state_dict()
    for name in names:
        tensors[name].copy_(tensors[name][order].clone())


def _reset(model: nn.Module, names: Sequence[str]) -> None:
    """Draw the parameters of these tensors' modules again."""
    for home in sorted({name.rpartition(".")[0] for name in names}):
        module = model.get_submodule(home)
        reset = getattr(module, "reset_parameters", None)
        if not callable(reset):
            raise ModelError(f"the head '{home}' of type {type(module).__name__} cannot be made again for other labels")
        reset()
