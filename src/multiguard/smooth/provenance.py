"""Where votes come from: whatever can change one is described, so that no folder mixes two runs."""

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch

from multiguard.data.sample import Dataset
from multiguard.errors import DataError, InvalidInputError, PictureError
from multiguard.models.classifier import UNNAMED, Classifier
from multiguard.models.options import state_hash
from multiguard.smooth.rounds import Scheme
from multiguard.smooth.smoother import Smoother
from multiguard.version import __version__
from multiguard.votes import Provenance, picture_hash

_MODEL_LIBRARIES = ("timm", "transformers", "onnxruntime")


def describe_run(
    smoother: Smoother, dataset: Dataset, scheme: Scheme, *, on_error: Literal["stop", "record"] = "stop"
) -> Provenance:
    """All that determines the votes of this run, read off the classifier as it is now and the first picture.

    Refuses a dataset without pictures or whose labels are not the classifier's, and a function without a name.

    Args:
        smoother: The smoothed classifier.
        dataset: The pictures.
        scheme: What is drawn of each.
        on_error: With "record" the first picture is the first that can be read; with "stop" that must be the very
            first one.
    """
    classifier, settings = smoother.classifier, smoother.settings
    _check_classifier(classifier)
    _check_dataset(dataset, classifier)
    return Provenance(
        model=classifier.name,
        weights_hash=classifier.weights_hash,
        classifier_hash=state_hash(classifier),
        code_hash=classifier.code_hash,
        trained_sigma=classifier.trained_sigma,
        output=classifier.output,
        label_names=classifier.label_names,
        dataset=dataset.name,
        image_ids=tuple(dataset.ids),
        labelled=scheme.labelled,
        truth_hash=_truth_hash(dataset) if scheme.labelled else None,
        first_picture_hash=_first_picture_hash(dataset, on_error),
        sigma=settings.sigma,
        rule=settings.rule,
        k_max=settings.k_max,
        score_threshold=settings.score_threshold,
        draws=scheme.looks[-1],
        pilot_draws=scheme.pilot_draws,
        looks=scheme.looks if scheme.stopping else None,
        look_shares=scheme.stopping.look_shares if scheme.stopping else None,
        stopping=scheme.stopping.record if scheme.stopping else None,
        seed=scheme.seed,
        noise=settings.noise,
        precision=settings.precision,
        channels_last=settings.channels_last,
        compiled=settings.compiled,
        noise_compiled=settings.noise_compiled,
        tf32_matmul=_allows_tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul),
        tf32_convolution=_allows_tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn),
        clamp=settings.clamp,
        device=_device_name(settings.device),
        versions=_versions(),
    )


def _check_classifier(classifier: Classifier) -> None:
    if classifier.weights_hash is None and classifier.name == UNNAMED:
        raise InvalidInputError(
            "a function has no weights to tell it from another one, and a resumed run must not mix the votes of two; "
            "give load_classifier(..., name=...) a name that changes when the function does."
        )


def _check_dataset(dataset: Dataset, classifier: Classifier) -> None:
    if tuple(dataset.label_names) != classifier.label_names:
        raise InvalidInputError(
            f"the dataset {dataset.name!r} and the classifier {classifier.name!r} must have the same labels "
            f"in the same order; not {_brief(dataset.label_names)} and {_brief(classifier.label_names)}."
        )
    if len(dataset) == 0:
        raise InvalidInputError(f"the dataset {dataset.name!r} holds no picture; votes need at least one.")


def _first_picture_hash(dataset: Dataset, on_error: Literal["stop", "record"]) -> str:
    if on_error == "stop":
        return picture_hash(dataset[0].image)
    for position in range(len(dataset)):
        with suppress(PictureError):
            return picture_hash(dataset[position].image)
    raise DataError(f"no picture of {dataset.name!r} can be read; votes need at least one.")


def _truth_hash(dataset: Dataset) -> str | None:
    """The sha256 of every image's labels, in order; None where they are known only with the pictures."""
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
