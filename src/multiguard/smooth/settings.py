"""How the base classifier is executed, and all else that determines votes: checked once, recorded as provenance."""

import hashlib
import json
import math
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from multiguard.certify import Rule, RuleName
from multiguard.certify.arguments import check_count, check_fraction
from multiguard.certify.noise import Noise
from multiguard.data.sample import Dataset
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.names import shorten_names
from multiguard.models.classifier import Classifier, is_module
from multiguard.smooth.noise_source import DEVICE_PHILOX, HOST_PHILOX, NoiseSource
from multiguard.version import __version__
from multiguard.votes.types import DEFAULT_RANKS, vote_dtype

if TYPE_CHECKING:
    from multiguard.smooth.rounds import Scheme
    from multiguard.smooth.smoother import Smoother
    from multiguard.votes import Provenance

_DEFAULT_SCORE_THRESHOLD = 0.5
Precision = Literal["float32", "bfloat16", "float16"]
_CHANNELS = 3


@dataclass(frozen=True)
class Settings:
    """How the classifier is executed; the certificate is about exactly this, so all of it is in the provenance.

    >>> from multiguard.models import load
    >>> from multiguard.smooth import Smoother
    >>> f = load(lambda x: x.flatten(1)[:, :4], labels=list("abcd"), output="logits")
    >>> settings = Smoother(f, sigma=0.5, device="cpu").settings
    >>> settings.k_max, settings.precision, settings.rule_name
    (4, 'float32', 'top-k')
    """

    noise: Noise  # in the unit of the input, which for images is that of pixels in [0, 1]
    k_max: int | None  # K', the number of ranked labels kept per draw; None if f returns sets
    score_threshold: float | None  # f returns the labels with at least this probability; None for ranked labels
    device: str  # "cpu", "cuda:1"
    noise_source: NoiseSource
    precision: Precision  # float32, or the dtype of autocast
    channels_last: bool  # whether images and weights are stored channels last
    compiled: bool  # whether torch.compile compiles the classifier
    noise_compiled: bool  # whether torch.compile compiles the noise made on the device
    clamp: bool  # whether f clamps the noisy input to [0, 1]

    @property
    def rule_name(self) -> RuleName:
        """The rule that these votes can certify: "top-k" for ranked labels, "threshold" for sets."""
        return "top-k" if self.score_threshold is None else "threshold"

    def check_rule(self, rule: Rule, num_labels: int) -> None:
        """Raises `InvalidInputError` unless these votes can certify this rule."""
        if not isinstance(rule, Rule):
            raise InvalidInputError(f"rule is {rule!r}; give TopK(k, k_prime=...) or Threshold(t).")
        if rule.ranked != (self.score_threshold is None):
            votes = "ranked labels" if self.score_threshold is None else "sets of labels"
            raise InvalidInputError(
                f"{rule} does not fit this smoother, whose votes are {votes}; score_threshold makes sets, for "
                "Threshold(t), and k_max ranked labels, for TopK and Threshold(t, k_prime=...)."
            )
        rule.check(num_labels)
        rule.check_ranks(self.k_max)


def resolve_settings(
    classifier: Classifier,
    noise: Noise,
    k_max: int | None,
    score_threshold: float | None,
    device: Any,
    clamp: bool,
    precision: Precision | None,
    channels_last: bool | None,
    compile: bool | None,  # noqa: A002 - torch's own word
    noise_source: NoiseSource | None,
) -> Settings:
    """The settings with every option checked; options left at None follow the device."""
    resolved, labels = resolve_device(classifier, device), len(classifier.label_names)
    cuda = resolved.startswith("cuda")
    known = (None, *getattr(classifier.network, "precisions", ("float32",)))
    ignored = {"precision": precision not in known, "channels_last": channels_last, "compile": compile}
    inside = _runs_in_torch(classifier, [name for name, given in ignored.items() if given])
    fast = inside and cuda
    vote_dtype(labels)  # refuses more labels than votes can hold
    if k_max is not None and score_threshold is not None:
        raise InvalidInputError("k_max keeps ranked labels and score_threshold makes sets of labels; give one of them.")
    source = noise_source or (DEVICE_PHILOX if cuda else HOST_PHILOX)
    check_choice("noise_source", source, get_args(NoiseSource))
    if clamp and noise.whole:
        raise InvalidInputError(f"clamp must be left out with the noise {noise}: hidden pixels would become black")
    check_choice("precision", precision := precision or ("bfloat16" if fast else "float32"), get_args(Precision))
    ranks = check_count("k_max", min(DEFAULT_RANKS, labels) if k_max is None else k_max, labels)
    noise.check_float32()
    settings = Settings(
        noise=noise,
        k_max=ranks if score_threshold is None else None,
        score_threshold=None if score_threshold is None else check_fraction("score_threshold", score_threshold),
        device=resolved,
        noise_source=source,
        precision=precision,
        channels_last=bool(inside and (cuda or convolutional(classifier)) if channels_last is None else channels_last),
        compiled=(fast and is_module(classifier.network)) if compile is None else compile,
        noise_compiled=cuda if compile is None else compile,
        clamp=clamp,
    )
    if score_threshold is not None:
        score_limit(classifier, score_threshold)
    if classifier.image_size is not None:
        noise.check_shape(f"an image of {classifier.name}", (_CHANNELS, *classifier.image_size))
    return settings


def score_limit(classifier: Classifier, score_threshold: float) -> float:
    """The float32 that scores are compared with: the threshold itself, or its logit where scores are logits."""
    if classifier.output is None:
        kinds = "--output logits or probabilities (output=...)"
        raise ModelError(f"{classifier.name}: a score threshold needs to know what its scores are; declare {kinds}")
    logit = math.log(score_threshold) - math.log1p(-score_threshold)
    return float(np.float32(score_threshold if classifier.output == "probabilities" else logit))


def convolutional(classifier: Classifier) -> bool:
    """Whether the classifier is a torch module with convolutions, which are faster channels last."""
    return is_module(classifier) and any(weights.ndim == 4 for weights in classifier.module().parameters())


def _runs_in_torch(classifier: Classifier, options: Sequence[str]) -> bool:
    """Whether torch runs the classifier; if not, options of torch are refused: no record may claim one without effect.

    onnxruntime or scikit-learn may run the classifier, or the one behind a denoiser.
    """
    outside = classifier.takes == "arrays" or (is_module(classifier) and classifier.module().has_arrays)
    if outside and options:
        raise InvalidInputError(
            f"{classifier.name} runs outside torch (onnxruntime, scikit-learn), in its own precision; leave out "
            f"{', '.join(options)}."
        )
    return classifier.takes == "tensors" and not outside


def in_torch(classifier: Classifier, device: Any, noise_source: NoiseSource | None, options: Sequence[Any]) -> bool:
    """Whether to run the torch form of a classifier of arrays: on a GPU, or with options of torch."""
    if noise_source == DEVICE_PHILOX:
        return True
    if not getattr(classifier.network, "has_torch_form", False):
        return False
    gpu = has_gpu() if device is None else not str(device).startswith("cpu")
    return gpu or any(option not in (None, False, *classifier.network.precisions) for option in options)  # type: ignore[attr-defined]


def resolve_device(classifier: Classifier, device: Any) -> str:
    """The device; by default CUDA if available. One that cannot be used is refused; arrays are on the CPU."""
    if classifier.takes == "tensors":
        from multiguard.smooth.torch_engine import torch_device

        return str(torch_device(device))
    if classifier.takes == "arrays" and device is not None and str(device) != "cpu":
        raise InvalidInputError(f"device is {device}, and {classifier.name} takes arrays, on the CPU; leave it out")
    return "cpu" if device is None else str(device)


def has_gpu() -> bool:
    """Whether torch may find a GPU; asking it takes seconds."""
    found = which("nvidia-smi") is not None or Path("/dev/nvidiactl").exists()
    return found and find_spec("torch") is not None


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises `InvalidInputError` unless the value is one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def score_threshold(rule: RuleName, given: float | None) -> float | None:
    """The probability from which the base classifier returns a label; None for the top-k rule, unless one is given."""
    return _DEFAULT_SCORE_THRESHOLD if rule == "threshold" and given is None else given


_MODEL_LIBRARIES = ("timm", "transformers", "onnxruntime")


def make_provenance(
    smoother: "Smoother",
    dataset: Dataset,
    scheme: "Scheme",
    first_image_hash: str,
    classifier_hash: str | None = None,
    *,
    resumable: bool = True,
) -> "Provenance":
    """Everything that determines the votes of this run, read from the classifier as it is now.

    `first_image_hash` is that of the first usable image; `classifier_hash` the `state_hash`, if just computed.
    Refuses a dataset whose labels are not the classifier's, and in a resumable run a function without a name.
    """
    from multiguard.votes import Provenance  # which imports pyarrow, and a prediction needs none

    classifier, stopping = smoother.classifier, scheme.stopping
    if resumable:
        classifier.check_named()
    _check_labels(dataset, classifier)
    return Provenance(
        model=classifier.name,
        weights_hash=classifier.weights_hash,
        classifier_hash=classifier_hash or classifier.state_hash(),
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


def execution(smoother: "Smoother") -> dict[str, Any]:
    """How and where the classifier runs, by the names of `Provenance`."""
    settings, in_tensors = smoother.settings, smoother.classifier.takes == "tensors"
    libraries = (*(("torch",) if in_tensors else ()), "numpy", *_MODEL_LIBRARIES)
    if in_tensors:
        from multiguard.smooth.torch_engine import torch_execution

        machine = torch_execution(settings.device)
    else:
        engine = getattr(smoother.classifier.network, "engine", "arrays")
        machine = {"tf32_matmul": False, "tf32_convolution": False, "device": f"cpu {platform.machine()}, {engine}"}
        if engine == "openvino":
            libraries = (*libraries, engine)
    return {
        **vars(settings),
        "rule": settings.rule_name,
        **machine,
        "versions": {
            "multiguard": __version__,
            "python": platform.python_version(),
            **{name: str(sys.modules[name].__version__) for name in libraries if name in sys.modules},
        },
    }


def _check_labels(dataset: Dataset, classifier: Classifier) -> None:
    if tuple(dataset.label_names) != classifier.label_names:
        raise InvalidInputError(
            f"the dataset {dataset.name!r} and the classifier {classifier.name!r} must have the same labels in the "
            f"same order, not {' and '.join(shorten_names(each.label_names, 4) for each in (dataset, classifier))}."
        )


def _truth_hash(dataset: Dataset) -> str | None:
    """The sha256 of every image's labels, in order; None if they are known only after decoding."""
    if (labels := getattr(dataset, "labels", None)) is None:
        return None
    return hashlib.sha256(json.dumps([sorted(int(label) for label in each) for each in labels]).encode()).hexdigest()
