"""What identifies a run: its recipe, data, labels, start and denoiser; only an equal run goes on in a folder."""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multiguard.data import Catalogued, Pixels
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.backbone import Backbone
from multiguard.models.denoiser import FFDNet
from multiguard.models.folder import CARD_FILE, ModelCard, read_card
from multiguard.models.options import state_hash
from multiguard.train.checkpoint import read_progress
from multiguard.train.hyperparameters import Hyperparameters
from multiguard.version import __version__

_MOST_SAID = 40  # characters of a value; a hash is longer


def described(name: str, ids: Sequence[str], targets: NDArray[np.uint8]) -> dict[str, Any]:
    """A split on record: which images, in which order, with which labels."""
    return {
        "name": name,
        "images": len(ids),
        "ids_sha256": hashlib.sha256("\0".join(ids).encode()).hexdigest(),
        "targets_sha256": hashlib.sha256(np.ascontiguousarray(targets).tobytes()).hexdigest(),
    }


def new_card(
    backbone: Backbone,
    labels: Sequence[str],
    size: tuple[int, int],
    splits: Mapping[str, Mapping[str, Any]],
    recipe: Hyperparameters,
    denoiser: FFDNet | None,
    provenance: Mapping[str, Any],
) -> ModelCard:
    """The card of a run that is about to begin, with everything that a run must share to go on from another.

    Args:
        backbone: The network to start from.
        labels: The label names.
        size: (height, width) of the images.
        splits: "train" and "val", each as `described` gives it.
        recipe: How to train.
        denoiser: What stands in front; its weights' hash is put on record.
        provenance: What else to put on record.
    """
    versions = {"multiguard": __version__, "torch": torch.__version__, "python": platform.python_version()}
    training = {
        "recipe": asdict(recipe),
        **splits,
        "denoiser_sha256": None if denoiser is None else state_hash(denoiser),
        "versions": versions,
        **provenance,
    }
    return ModelCard(
        architecture=backbone.architecture,
        label_names=tuple(labels),
        image_size=size,
        mean=backbone.mean,
        std=backbone.std,
        sigma=recipe.validation_sigma,
        denoiser=denoiser is not None,
        training=training,
    )


def run_settings(card: ModelCard) -> dict[str, Any]:
    """What a run must share to go on from this card's: all of it but the versions, for an upgrade ends no run."""
    shared = {key: value for key, value in card.training.items() if key != "versions"}
    more = {"architecture": card.architecture, "image_size": card.image_size, "label_names": card.label_names}
    settings: dict[str, Any] = json.loads(json.dumps({**shared, **more}))
    return settings


def require_own_run(out: Path, settings: Mapping[str, Any]) -> None:
    """Pass only if the folder is free or holds a run with these settings; else name what differs."""
    progress = read_progress(out)
    if progress is not None:
        _require_same(progress.settings, settings, out)
    elif (out / CARD_FILE).is_file():
        _require_same(run_settings(read_card(out)), settings, out)


def holds_other_run(out: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a run with these settings could not go on in the folder: it holds another's, or one damaged."""
    try:
        require_own_run(out, settings)
    except InvalidInputError:
        return True
    except ModelError as error:
        if isinstance(error.__cause__, OSError):  # it may be this run's all the same
            raise
        return True
    return False


def _require_same(before: Mapping[str, Any], now: Mapping[str, Any], out: Path) -> None:
    was, is_ = _flat(before), _flat(now)
    other = [key for key in sorted({*was, *is_}) if was.get(key) != is_.get(key)]
    if other:
        told = "; ".join(_difference(key, was.get(key), is_.get(key)) for key in other)
        raise InvalidInputError(
            f"{out} holds a run with other settings: {told}. --force trains anew, or give another folder"
        )


def _flat(settings: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The settings by dotted names, those of the recipe by their own."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = "" if key == "recipe" and not place else f"{place}{key}."
        found |= _flat(value, inner) if isinstance(value, Mapping) else {f"{place}{key}": value}
    return found


def _difference(key: str, before: Any, now: Any) -> str:
    texts = [json.dumps(value, ensure_ascii=False) for value in (before, now)]
    if max(map(len, texts)) > _MOST_SAID:
        return f"{key} has changed"
    return f"{key} was {texts[0]} and is {texts[1]}"


def require_apart(training: Catalogued | Pixels, validation: Catalogued | Pixels) -> None:
    """Pass only if the two share their labels and no image: a seen image would flatter every epoch."""
    if tuple(training.label_names) != tuple(validation.label_names):
        raise InvalidInputError(f"{training.name} and {validation.name} do not have the same labels in one order")
    seen = set(training.ids)
    both = [id_ for id_ in validation.ids if id_ in seen]
    if both:
        raise InvalidInputError(
            f"{len(both)} images of {validation.name}, the first '{both[0]}', are also in {training.name}; "
            "validate on another split, or leave --val-split out to hold out a tenth"
        )


def require_fit(pixels: Pixels, val_pixels: Pixels, recipe: Hyperparameters, world: int) -> None:
    """Pass only if so many processes can train on the one and judge every epoch on the other."""
    require_apart(pixels, val_pixels)
    if pixels.images.shape[1:] != val_pixels.images.shape[1:]:
        raise InvalidInputError(f"{pixels.name} and {val_pixels.name} do not have images of one size")
    if not val_pixels.targets.any():
        raise InvalidInputError(f"{val_pixels.name}: not one image has a label, so no epoch can be judged")
    if recipe.batch % world:
        raise InvalidInputError(f"batch {recipe.batch} does not divide among {world} processes; take a multiple")
    if len(pixels) < world:
        raise InvalidInputError(f"{pixels.name}: {len(pixels)} images for {world} processes")
