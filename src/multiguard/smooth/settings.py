"""How the base classifier is executed: all that can change a vote, checked once and recorded with it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from multiguard.certify import Rule, RuleName, TopK
from multiguard.certify.rules import check_ranks
from multiguard.errors import InvalidInputError
from multiguard.models.classifier import Classifier
from multiguard.models.from_onnx import OnnxNetwork
from multiguard.smooth.arguments import real_number, whole_number
from multiguard.smooth.noise import DEVICE_PHILOX, HOST_PHILOX, NoiseSource
from multiguard.votes import vote_dtype
from multiguard.votes.ranked import DEFAULT_RANKS

Precision = Literal["float32", "bfloat16", "float16"]
DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Settings:
    """The certificate is about the classifier as executed, so each of these is part of its provenance.

    Attributes:
        sigma: The noise is N(0, sigma^2) in the units of the input, [0, 1] for images.
        k_max: K', how many ranked labels of each draw are kept; None where f returns sets.
        score_threshold: The probability at which a score passes, so that f returns the set of the labels that do; None
            where f returns ranked labels.
        device: Where the classifier runs.
        noise: Which source makes the noise.
        precision: float32, or the dtype of autocast.
        channels_last: Whether images and weights lie channels last in memory.
        compiled: Whether torch.compile compiles the classifier.
        noise_compiled: Whether torch.compile compiles the noise that is made on the device.
        clamp: Whether f clamps the noisy input to [0, 1].
    """

    sigma: float
    k_max: int | None
    score_threshold: float | None
    device: torch.device
    noise: NoiseSource
    precision: Precision
    channels_last: bool
    compiled: bool
    noise_compiled: bool
    clamp: bool

    @property
    def rule_name(self) -> RuleName:
        """The rule that these votes can certify: "top-k" for ranked labels, "threshold" for sets."""
        return "top-k" if self.score_threshold is None else "threshold"

    def check_rule(self, rule: Rule, num_labels: int) -> None:
        """Raises unless votes made in this way can say what this smoothed classifier returns."""
        if rule.name != self.rule_name:
            raise InvalidInputError(
                f"{rule} does not fit this smoother, whose votes are for the {self.rule_name} rule; score_threshold "
                "makes votes for the threshold rule, k_max for the top-k rule."
            )
        rule.check(num_labels)
        if isinstance(rule, TopK) and self.k_max is not None:
            check_ranks(rule.k_prime, self.k_max)


def resolve_settings(
    classifier: Classifier,
    *,
    sigma: float,
    k_max: int | None,
    score_threshold: float | None,
    device: str | torch.device | None,
    clamp: bool,
    precision: Precision | None,
    channels_last: bool | None,
    compile: bool | None,  # noqa: A002 - the word that torch uses for it
    noise: NoiseSource | None,
) -> Settings:
    """Every option settled: what the caller left open follows the device."""
    place = _device(device)
    cuda, torch_runs_it = place.type == "cuda", not _runs_onnx(classifier)
    if not torch_runs_it:
        _refuse_torch_options(classifier, precision, channels_last, compile)
    fast = cuda and torch_runs_it
    vote_dtype(len(classifier.label_names))  # refuses more labels than votes can hold
    if k_max is not None and score_threshold is not None:
        raise InvalidInputError("k_max keeps ranked labels and score_threshold makes sets of labels; give one of them.")
    return Settings(
        sigma=_sigma(sigma),
        k_max=_ranks(k_max, len(classifier.label_names)) if score_threshold is None else None,
        score_threshold=None if score_threshold is None else _passing_score(score_threshold),
        device=place,
        noise=_noise(noise or (DEVICE_PHILOX if cuda else HOST_PHILOX)),
        precision=_precision(precision or ("bfloat16" if fast else "float32")),
        channels_last=fast if channels_last is None else channels_last,
        compiled=(fast and isinstance(classifier.network, nn.Module)) if compile is None else compile,
        noise_compiled=cuda if compile is None else compile,
        clamp=clamp,
    )


def _device(device: str | torch.device | None) -> torch.device:
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError(f"device is {place}, but torch sees no CUDA device here; use device='cpu'.")
    return place


def _runs_onnx(classifier: Classifier) -> bool:
    """Whether onnxruntime runs the classifier, or the one behind a denoiser."""
    return any(isinstance(getattr(module, "network", None), OnnxNetwork) for module in classifier.modules())


def _refuse_torch_options(
    classifier: Classifier,
    precision: Precision | None,
    channels_last: bool | None,
    compile: bool | None,  # noqa: A002 - the word that torch uses for it
) -> None:
    """Refuse what onnxruntime would not do, so that no record says that it was done."""
    given = {"precision": precision not in (None, "float32"), "channels_last": channels_last, "compile": compile}
    dropped = [name for name, wanted in given.items() if wanted]
    if dropped:
        raise InvalidInputError(
            f"{classifier.name} is run by onnxruntime, in float32, as its file says; leave out {', '.join(dropped)}."
        )


def _sigma(sigma: float) -> float:
    if not 0 < real_number("sigma", sigma) < float("inf"):
        raise InvalidInputError(
            f"sigma must be a finite number above 0, not {sigma!r}: without noise there is no certificate."
        )
    return float(sigma)


def _passing_score(score_threshold: float) -> float:
    chosen = real_number("score_threshold", score_threshold)
    if not 0 < chosen < 1:
        raise InvalidInputError(
            f"score_threshold must be a probability strictly between 0 and 1, not {score_threshold!r}; "
            "scores that are logits are compared with its logit."
        )
    return chosen


def _ranks(k_max: int | None, labels: int) -> int:
    chosen = min(DEFAULT_RANKS, labels) if k_max is None else whole_number("k_max", k_max)
    if not 1 <= chosen <= labels:
        raise InvalidInputError(
            f"k_max must lie between 1 and the classifier's {labels} labels, not {chosen}: "
            "a draw cannot rank more labels than there are."
        )
    return chosen


def _noise(noise: NoiseSource) -> NoiseSource:
    if noise not in (HOST_PHILOX, DEVICE_PHILOX):
        raise InvalidInputError(f"noise must be {HOST_PHILOX!r} or {DEVICE_PHILOX!r}, not {noise!r}.")
    return noise


def _precision(precision: Precision) -> Precision:
    if precision not in DTYPES:
        raise InvalidInputError(f"precision must be one of {', '.join(DTYPES)}, not {precision!r}.")
    return precision
