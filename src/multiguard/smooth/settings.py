"""How the base classifier is executed: every option that can change a vote, checked once and recorded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from multiguard.certify import Rule, RuleName
from multiguard.certify.arguments import check_count, check_fraction
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError
from multiguard.io.ranks import this_rank
from multiguard.models.classifier import Classifier
from multiguard.models.host_network import HostNetwork
from multiguard.smooth.noise_source import DEVICE_PHILOX, HOST_PHILOX, NoiseSource
from multiguard.votes.types import DEFAULT_RANKS, vote_dtype

_DEFAULT_SCORE_THRESHOLD = 0.5
Precision = Literal["float32", "bfloat16", "float16"]
_CHANNELS = 3
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


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
    device: torch.device
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
        if rule.name != self.rule_name:
            raise InvalidInputError(
                f"{rule} does not fit this smoother, whose votes are for the {self.rule_name} rule; score_threshold "
                "makes votes for the threshold rule, k_max for the top-k rule."
            )
        rule.check(num_labels)
        rule.check_ranks(self.k_max)


def resolve_settings(
    classifier: Classifier,
    noise: Noise,
    k_max: int | None,
    score_threshold: float | None,
    device: str | torch.device | None,
    clamp: bool,
    precision: Precision | None,
    channels_last: bool | None,
    compile: bool | None,  # noqa: A002 - torch's own word
    noise_source: NoiseSource | None,
) -> Settings:
    """The settings with every option checked; options left at None follow the device."""
    resolved, labels = resolve_device(device), len(classifier.label_names)
    cuda = resolved.type == "cuda"
    ignored = {"precision": precision not in (None, "float32"), "channels_last": channels_last, "compile": compile}
    fast = _runs_in_torch(classifier, [name for name, given in ignored.items() if given]) and cuda
    vote_dtype(labels)  # refuses more labels than votes can hold
    if k_max is not None and score_threshold is not None:
        raise InvalidInputError("k_max keeps ranked labels and score_threshold makes sets of labels; give one of them.")
    source = noise_source or (DEVICE_PHILOX if cuda else HOST_PHILOX)
    check_choice("noise_source", source, get_args(NoiseSource))
    if clamp and noise.whole:
        raise InvalidInputError(f"clamp must be left out with the noise {noise}: hidden pixels would become black")
    check_choice("precision", precision := precision or ("bfloat16" if fast else "float32"), DTYPES)
    ranks = check_count("k_max", min(DEFAULT_RANKS, labels) if k_max is None else k_max, labels)
    noise.check_float32()
    settings = Settings(
        noise=noise,
        k_max=ranks if score_threshold is None else None,
        score_threshold=None if score_threshold is None else check_fraction("score_threshold", score_threshold),
        device=resolved,
        noise_source=source,
        precision=precision,
        channels_last=fast if channels_last is None else channels_last,
        compiled=(fast and isinstance(classifier.network, nn.Module)) if compile is None else compile,
        noise_compiled=cuda if compile is None else compile,
        clamp=clamp,
    )
    if classifier.image_size is not None:
        noise.check_shape(f"an image of {classifier.name}", (_CHANNELS, *classifier.image_size))
    return settings


def _runs_in_torch(classifier: Classifier, options: Sequence[str]) -> bool:
    """Whether torch runs the classifier; if not, options of torch are refused: no record may claim one without effect.

    onnxruntime or scikit-learn may run the classifier, or the one behind a denoiser.
    """
    outside = any(isinstance(getattr(module, "network", None), HostNetwork) for module in classifier.modules())
    if outside and options:
        raise InvalidInputError(
            f"{classifier.name} runs outside torch (onnxruntime, scikit-learn), in its own precision; leave out "
            f"{', '.join(options)}."
        )
    return not outside


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device; by default CUDA if available. A device that torch does not know, or cannot use, is refused."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        found = f"it finds {torch.cuda.device_count()} CUDA devices"
        raise InvalidInputError(f"device is {device}, which torch cannot use here ({found}); take cpu") from error
    return torch.device(device)


def cpu_has_bfloat16() -> bool:
    """Whether the processor computes in bfloat16, which is about twice as fast as float32 there."""
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in probes)


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises `InvalidInputError` unless the value is one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def own_device(device: str | None) -> str | None:
    """The requested device; of several processes on one machine each takes its own GPU if none was named."""
    rank, gpus = this_rank(), torch.cuda.device_count()
    return f"cuda:{rank.local % gpus}" if rank.count > 1 and gpus and device in (None, "cuda") else device


def score_threshold(rule: RuleName, given: float | None) -> float | None:
    """The probability from which the base classifier returns a label; None for the top-k rule, unless one is given."""
    return _DEFAULT_SCORE_THRESHOLD if rule == "threshold" and given is None else given
