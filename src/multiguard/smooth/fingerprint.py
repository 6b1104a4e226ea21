"""What determines the votes of a run: recorded as its provenance, so that no folder mixes two runs."""

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from multiguard.data.sample import Dataset
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.classifier import UNNAMED, Classifier, state_hash
from multiguard.models.sklearn import EstimatorNetwork, estimator_hash
from multiguard.smooth.rounds import Scheme
from multiguard.smooth.smoother import Smoother
from multiguard.version import __version__
from multiguard.votes import Provenance

_MODEL_LIBRARIES = ("timm", "transformers", "onnxruntime")
_NAMES_SHOWN = 4


def make_provenance(
    smoother: Smoother,
    dataset: Dataset,
    scheme: Scheme,
    first_image_hash: str,
    classifier_hash: str | None = None,
    *,
    resumable: bool = True,
) -> Provenance:
    """Everything that determines the votes of this run, read from the classifier as it is now.

    `first_image_hash` is that of the first usable image; `classifier_hash` the `state_hash`, if just computed.
    Refuses a dataset whose labels are not the classifier's, and in a resumable run a function without a name.
    """
    classifier, stopping = smoother.classifier, scheme.stopping
    if resumable:
        _check_name(classifier)
    _check_labels(dataset, classifier)
    return Provenance(
        model=classifier.name,
        weights_hash=classifier.weights_hash,
        classifier_hash=classifier_hash or state_hash(classifier),
        code_hash=classifier.code_hash,
        trained_noise=classifier.trained_noise,
        output=classifier.output,
        label_names=classifier.label_names,
        dataset=dataset.name,
        image_ids=dataset.ids,
        labelled=scheme.labelled,
        truth_hash=_truth_hash(dataset) if scheme.labelled else None,
        first_image_hash=first_image_hash,
        draws=scheme.stops[-1],
        earlier_draws=(),
        pilot_draws=scheme.pilot_draws,
        stops=scheme.stops if stopping else None,
        stopping=stopping.record if stopping else None,
        noise_seed=scheme.noise_seed,
        **execution(smoother),
    )


def execution(smoother: Smoother) -> dict[str, Any]:
    """How and where the classifier runs, by the names of `Provenance`."""
    settings, device = smoother.settings, smoother.settings.device
    return {
        **vars(settings),
        "rule": settings.rule_name,
        **tf32_flags(),
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{device.type} {platform.machine()}",
        "versions": {
            "multiguard": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
            **{name: str(sys.modules[name].__version__) for name in _MODEL_LIBRARIES if name in sys.modules},
        },
    }


def tf32_flags() -> dict[str, bool]:
    """Whether products of float32 matrices, and convolutions, may be rounded to TF32."""
    return {
        "tf32_matmul": _allows_tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul),
        "tf32_convolution": _allows_tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn),
    }


def _check_name(classifier: Classifier) -> None:
    if classifier.weights_hash is None and classifier.name == UNNAMED:
        raise InvalidInputError(
            "a function has no weights that identify it, and a resumed run "
            "must not mix the votes of two functions; give load(..., name=...) a name that changes when the function "
            "does."
        )
    network = classifier.network
    if isinstance(network, EstimatorNetwork) and classifier.weights_hash is None:
        raise InvalidInputError(
            f"{classifier.name} cannot be pickled, so nothing identifies what it has learnt, and a resumed run must "
            "not mix the votes of two estimators; give it functions of a module in place of lambdas."
        )
    if isinstance(network, EstimatorNetwork) and estimator_hash(network.model) != classifier.weights_hash:
        raise ModelError(f"{classifier.name} was fitted or changed after it was loaded; make a new Smoother of it.")


def _check_labels(dataset: Dataset, classifier: Classifier) -> None:
    if tuple(dataset.label_names) != classifier.label_names:
        raise InvalidInputError(
            f"the dataset {dataset.name!r} and the classifier {classifier.name!r} must have the same labels in the "
            f"same order, not {_shorten(dataset.label_names)} and {_shorten(classifier.label_names)}."
        )


def _shorten(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{len(names)} labels ({shown}{', ...' if len(names) > _NAMES_SHOWN else ''})"


def _truth_hash(dataset: Dataset) -> str | None:
    """The sha256 of every image's labels, in order; None if they are known only after decoding."""
    if (labels := getattr(dataset, "labels", None)) is None:
        return None
    return hashlib.sha256(json.dumps([sorted(int(label) for label in each) for each in labels]).encode()).hexdigest()


def _allows_tf32(backend: Any, legacy: Any) -> bool:
    """Whether float32 may be rounded to TF32; torch refuses to read the old flag once the new one is set."""
    precision = getattr(backend, "fp32_precision", None)
    return bool(legacy.allow_tf32) if precision is None else precision == "tf32"
