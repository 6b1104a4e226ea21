"""Where votes come from: whatever can change one is described, so that no folder mixes two runs."""

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from multiguard.data.sample import Dataset
from multiguard.errors import DataError, ImageError, InvalidInputError, VotesError
from multiguard.models.classifier import UNNAMED, Classifier
from multiguard.models.options import state_hash
from multiguard.smooth.rounds import Scheme
from multiguard.smooth.smoother import Smoother
from multiguard.version import __version__
from multiguard.votes import Provenance, Votes, image_hash, read_votes
from multiguard.votes.manifest import load_manifest

_MODEL_LIBRARIES = ("timm", "transformers", "onnxruntime")


@dataclass(frozen=True)
class FirstImage:
    """The image that a run is known by: its position in the dataset, and its `image_hash`."""

    position: int
    hash: str


def first_image(dataset: Dataset, on_error: Literal["stop", "record"] = "stop") -> FirstImage:
    """The first image; with "record" the first that can be read. A dataset without any raises."""
    if len(dataset) == 0:
        raise InvalidInputError(f"the dataset {dataset.name!r} holds no image; votes need at least one.")
    if on_error == "stop":
        return FirstImage(0, image_hash(dataset[0].image))
    for position in range(len(dataset)):
        with suppress(ImageError):
            return FirstImage(position, image_hash(dataset[position].image))
    raise DataError(f"no image of {dataset.name!r} can be read; votes need at least one.")


def describe_run(smoother: Smoother, dataset: Dataset, scheme: Scheme, first: FirstImage) -> Provenance:
    """All that determines the votes of this run, read off the classifier as it is now.

    Refuses a dataset whose labels are not the classifier's, and a function without a name.

    Args:
        smoother: The smoothed classifier.
        dataset: The images.
        scheme: What is drawn of each.
        first: The first of the images.
    """
    _check_classifier(smoother.classifier)
    _check_labels(dataset, smoother.classifier)
    parts = (_classifier(smoother.classifier), _images(dataset, scheme, first), _draws(scheme), execution(smoother))
    return Provenance(**{name: value for part in parts for name, value in part.items()})


def _classifier(classifier: Classifier) -> dict[str, Any]:
    """Who votes."""
    return {
        "model": classifier.name,
        "weights_hash": classifier.weights_hash,
        "classifier_hash": state_hash(classifier),
        "code_hash": classifier.code_hash,
        "trained_sigma": classifier.trained_sigma,
        "output": classifier.output,
        "label_names": classifier.label_names,
    }


def _images(dataset: Dataset, scheme: Scheme, first: FirstImage) -> dict[str, Any]:
    """What is voted on."""
    return {
        "dataset": dataset.name,
        "image_ids": tuple(dataset.ids),
        "labelled": scheme.labelled,
        "truth_hash": _truth_hash(dataset) if scheme.labelled else None,
        "first_image_hash": first.hash,
    }


def _draws(scheme: Scheme) -> dict[str, Any]:
    """How often."""
    stopping = scheme.stopping
    return {
        "draws": scheme.looks[-1],
        "pilot_draws": scheme.pilot_draws,
        "looks": scheme.looks if stopping else None,
        "look_fractions": stopping.look_fractions if stopping else None,
        "stopping": stopping.record if stopping else None,
        "seed": scheme.seed,
    }


_SETTINGS = (
    *("sigma", "k_max", "score_threshold", "noise", "precision"),
    *("channels_last", "compiled", "noise_compiled", "clamp"),
)


def execution(smoother: Smoother) -> dict[str, Any]:
    """How the classifier was run, and where."""
    return {
        "rule": smoother.settings.rule_name,
        **{name: getattr(smoother.settings, name) for name in _SETTINGS},
        "tf32_matmul": _allows_tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul),
        "tf32_convolution": _allows_tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn),
        "device": _device_name(smoother.settings.device),
        "versions": _versions(),
    }


def as_begun(run: Provenance, folder: Path, dataset: Dataset) -> Provenance:
    """The run as its folder knows it, where only another image is now the first that can be read.

    A run that recorded its first images as failures is known by a later one, also after they were mended. It is the
    same run if the images that it is compared by are still those that it voted on.
    """
    try:
        stored = load_manifest(folder).provenance
        if run.differences(stored) != ["first_image_hash"]:
            return run
        return stored if _same_images(dataset, stored, read_votes(folder, partial=True)) else run
    except VotesError:  # whoever goes on with the folder finds the same, and says so
        return run


def _same_images(dataset: Dataset, stored: Provenance, votes: Votes) -> bool:
    """Whether the first image that can be read, and did not fail, is as it was when it was voted on."""
    voted, failed = dict(zip(votes.ids, votes.image_hashes, strict=True)), {each.image_id for each in votes.failures}
    for position, image_id in enumerate(dataset.ids):
        with suppress(ImageError):
            found = image_hash(dataset[position].image)
            if found == stored.first_image_hash:
                return True
            if image_id not in failed:
                return found == voted.get(image_id)
    return False


def _check_classifier(classifier: Classifier) -> None:
    if classifier.weights_hash is None and classifier.name == UNNAMED:
        raise InvalidInputError(
            "a function has no weights to tell it from another one, and a resumed run must not mix the votes of two; "
            "give load_classifier(..., name=...) a name that changes when the function does."
        )


def _check_labels(dataset: Dataset, classifier: Classifier) -> None:
    if tuple(dataset.label_names) != classifier.label_names:
        raise InvalidInputError(
            f"the dataset {dataset.name!r} and the classifier {classifier.name!r} must have the same labels "
            f"in the same order; not {_brief(dataset.label_names)} and {_brief(classifier.label_names)}."
        )


def _truth_hash(dataset: Dataset) -> str | None:
    """The sha256 of every image's labels, in order; None where they are known only with the images."""
    labels = getattr(dataset, "labels", None)
    if labels is None:
        return None
    return hashlib.sha256(json.dumps([sorted(int(label) for label in each) for each in labels]).encode()).hexdigest()


def _allows_tf32(backend: Any, legacy: Any) -> bool:
    """Whether float32 may be rounded to TF32; torch refuses to answer the old question once the new one is set."""
    precision = getattr(backend, "fp32_precision", None)
    return bool(legacy.allow_tf32) if precision is None else precision == "tf32"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} {platform.machine()}"


def _versions() -> dict[str, str]:
    imported = {name: sys.modules[name] for name in _MODEL_LIBRARIES if name in sys.modules}
    return {
        "multiguard": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        **{name: str(module.__version__) for name, module in imported.items()},
    }


def _brief(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{len(names)} labels ({shown}{', ...' if len(names) > 4 else ''})"
