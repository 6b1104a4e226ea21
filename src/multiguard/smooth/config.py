"""How a classifier is sampled and executed, and how images are predicted: configs, and the settings made from them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Annotated, Any, Literal, get_args

import numpy as np
from msgspec import Meta
from msgspec.structs import fields

from multiguard.certify import Rule, RuleName
from multiguard.certify.arguments import check_count, check_fraction, check_radii
from multiguard.certify.noise import NO_NOISE, Noise, given_noise
from multiguard.certify.rules import default_rule
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.config import Config, Count, Draws, Fraction, NotNegative, Side, Threads, described
from multiguard.models.classifier import Classifier, is_module
from multiguard.smooth.noise_source import DEVICE_PHILOX, HOST_PHILOX, NoiseSource
from multiguard.votes.types import DEFAULT_RANKS, vote_dtype

DEFAULT_DRAWS, _DEFAULT_MAX_DRAWS = 1000, 10_000
_DEFAULT_PILOT_DRAWS = 100
_DEFAULT_SCORE_THRESHOLD = 0.5
_CHANNELS = 3
Precision = Literal["float32", "bfloat16", "float16"]

_Device = Annotated[
    str,
    Meta(pattern=r"^(cpu|mps|(cuda|xpu)(:\d{1,4})?)$", title="one of cpu, cuda, cuda:N, mps, xpu, xpu:N"),
]
Device = Annotated[_Device | None, described("Where the model runs, such as cpu or cuda:1 [a GPU, if any].")]
PrecisionOption = Annotated[Precision | None, described("Arithmetic of the model [float32; on a GPU bfloat16].")]
Clamp = Annotated[bool, described("Clamp noisy images to [0, 1] first.")]
ScoreThreshold = Annotated[
    Fraction | None, described("For threshold: the probability from which the model returns a label [0.5].")
]
SigmaOption = Annotated[float | None, described("Gaussian noise, for pixels in [0, 1] [the model folder's].")]
NoiseOption = Annotated[
    str | None, described("Other noise: uniform:0.5 (l1), pixels:45 (changed pixels) or band:4 (a patch).")
]
OnError = Annotated[Literal["stop", "record"], described("At a bad image: stop, or record it and continue.")]


class VoteConfig(Config, frozen=True):
    """How the classifier is sampled; None means the default, which may depend on the device.

    >>> VoteConfig(draws="adaptive", radii=(0.5,)).most_draws
    10000
    """

    draws: Annotated[
        Draws | Literal["adaptive"] | None,
        described("n per image, or adaptive: as many as needed [1000; band: one per column]."),
    ] = None
    max_draws: Annotated[Draws | None, described("The most adaptive draws per image [10000].")] = None
    radii: Annotated[tuple[float, ...], described("A radius at which adaptive draws try to prove more.", "radius")] = ()
    pilot_draws: Annotated[
        Annotated[int, Meta(ge=0, le=100_000_000)] | None,
        described("Draws that choose the labels [100 with --no-labels]."),
    ] = None
    rule: Annotated[RuleName, described("top-k: the model ranks labels; threshold: it returns a set of them.")] = (
        "top-k"
    )
    score_threshold: ScoreThreshold = None
    noise_seed: Annotated[int | None, described("Seed of the noise [random, or as in the votes to resume].")] = None
    k_max: Annotated[Count | None, described("Ranked labels kept per draw: the largest k' [10, or all].")] = None
    batch_size: Annotated[Count | None, described("Noisy images per batch [what fits].")] = None
    device: Device = None
    precision: PrecisionOption = None
    clamp: Clamp = False
    shard_images: Annotated[Count, described("Images per file: what an interruption costs at most.")] = 64
    readers: Annotated[Threads, described("Threads that decode images.", "workers")] = 2
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule == "top-k" and self.score_threshold is not None:
            raise InvalidInputError("score_threshold belongs to the threshold rule; the top-k rule ranks labels")
        if self.rule == "threshold" and self.k_max is not None:
            raise InvalidInputError("k_max belongs to the top-k rule; the threshold rule keeps every label it returns")
        if self.adaptive:
            self._check_adaptive()
        elif self.radii or self.max_draws is not None:
            raise InvalidInputError(f"radii and max_draws belong to adaptive draws, and draws is {self.most_draws}")

    @property
    def adaptive(self) -> bool:
        """Whether each image takes as many draws as its certificate needs."""
        return self.draws == "adaptive"

    @property
    def most_draws(self) -> int:
        """The most draws that one image takes."""
        if self.draws == "adaptive":
            return _DEFAULT_MAX_DRAWS if self.max_draws is None else self.max_draws
        return DEFAULT_DRAWS if self.draws is None else self.draws

    def for_noise(self, noise: Noise) -> "VoteConfig":
        """The same with the number of draws filled in; a band ablation has one per column, and no pilot draws."""
        pilots = self.pilot_draws if noise.positions is None else self.pilot_draws or 0
        return self.replace(draws=self.draws or noise.positions or DEFAULT_DRAWS, pilot_draws=pilots)

    def pilots(self, labelled: bool) -> int:
        """How many draws per image choose its labels."""
        default = 0 if labelled else _DEFAULT_PILOT_DRAWS
        return default if self.pilot_draws is None else self.pilot_draws

    def _check_adaptive(self) -> None:
        if not self.radii:
            raise InvalidInputError(
                "adaptive draws stop once nothing more can be proved at the given radii, and none is given; name one "
                "or more, such as --radius 0.5 (vote.radii: [0.5] in a recipe)"
            )
        check_radii(self.radii)


class ClusterConfig(Config, frozen=True):
    """Which machines vote.

    >>> ClusterConfig("here")
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: cluster is 'here'; expected local, auto or ray://HOST:PORT
    """

    cluster: Annotated[
        Annotated[str, Meta(pattern=r"^(local|auto|ray://.+:\d+)$", title="local, auto or ray://HOST:PORT")] | None,
        described("Vote on a Ray cluster: local (this machine), auto (the one it belongs to) or ray://HOST:PORT."),
    ] = None
    actors: Annotated[Count | None, described("Processes that vote on the cluster [one per GPU, or per CPU].")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.actors and self.cluster is None:
            raise InvalidInputError("actors belong to a cluster; give --cluster local, auto or ray://HOST:PORT with it")


class PredictConfig(Config, frozen=True):
    """How images are predicted: with a calibration, or by a rule and with which confidence.

    >>> PredictConfig(recall=0.9, k=5)
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: k belongs to a rule, and a calibration has a rule of its own; leave one out
    """

    recall: Annotated[Fraction | None, described("The recall promised, of the model's own calibrations [0.8].")] = None
    radius: Annotated[NotNegative | None, described("The attack that it is promised under [0.5].")] = None
    calibration: Annotated[Path | None, described("A calibration that multiguard calibrate made.")] = None
    k: Annotated[int | None, described("The most labels to predict [5, or all].")] = None
    k_prime: Annotated[int | None, described("How many labels the model returns per draw [half of k, rounded up].")] = (
        None
    )
    rule: Annotated[
        RuleName | None,
        described("top-k: the k most frequent labels; threshold: all frequent ones [top-k; or a calibration]."),
    ] = None
    threshold: Annotated[float | None, described("For threshold: the fraction of draws that a label needs [0.5].")] = (
        None
    )
    score_threshold: ScoreThreshold = None
    sigma: SigmaOption = None
    noise: NoiseOption = None
    draws: Annotated[Draws, described("The most draws that certify; an image takes what it needs.")] = 120
    pilot_draws: Annotated[Draws, described("Further draws that choose the labels.")] = 30
    radii: Annotated[tuple[float, ...], described("A radius that draws try to prove [four that fit the noise].")] = ()
    alpha: Annotated[float, described("The probability that anything said of an image is wrong.")] = 0.001
    noise_seed: Annotated[int | None, described("Seed of the noise [random].")] = None
    size: Annotated[Side | None, described("Height and width of the images [the model's].")] = None
    device: Device = None
    precision: Annotated[
        Precision | None,
        described("Arithmetic of the model [bfloat16 where the device has it, or float32]."),
    ] = None
    clamp: Clamp = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calibration is not None and (self.recall, self.radius) != (None, None):
            raise InvalidInputError("calibration has its own recall and radius; leave out --recall and --radius")
        if self.names_calibration and self.own_rule:
            raise InvalidInputError(
                f"{self.own_rule[0]} belongs to a rule, and a calibration has a rule of its own; leave one out"
            )

    @property
    def names_calibration(self) -> bool:
        """Whether a calibration is asked for."""
        return (self.recall, self.radius, self.calibration) != (None, None, None)

    @property
    def own_rule(self) -> list[str]:
        """The names of the fields that a calibration would set and that are not at their defaults."""
        return [one.name for one in fields(self) if one.name in _OF_A_RULE and getattr(self, one.name) != one.default]

    def rule_for(self, num_labels: int) -> Rule:
        """The smoothed classifier without a calibration, with defaults for what is left open."""
        name = self.rule or "top-k"
        return default_rule(name, num_labels, k=self.k, k_prime=self.k_prime, threshold=self.threshold)


_OF_A_RULE = (
    *("k", "k_prime", "rule", "threshold", "score_threshold", "sigma", "noise", "draws", "pilot_draws", "radii"),
    *("precision", "clamp"),
)


def named_noise(sigma: float | None, noise: str | None) -> str | None:
    """The text of the noise to vote with that a command or a recipe names by one of the two; None by neither.

    >>> named_noise(0.5, None)
    'gaussian:0.5'
    """
    if (text := given_noise(sigma, noise)) == NO_NOISE:
        given = f"sigma is {sigma}" if noise is None else f"noise is {noise}"
        raise InvalidInputError(f"{given}; without noise there is no certificate: take one above 0")
    return text


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
    *,
    k_max: int | None,
    score_threshold: float | None,
    device: Any,
    clamp: bool,
    precision: Precision | None,
    compile: bool | None,  # noqa: A002 - torch's own word
    noise_source: NoiseSource | None,
) -> Settings:
    """The settings with every option checked; options left at None follow the device."""
    resolved, labels = resolve_device(classifier, device), len(classifier.label_names)
    cuda = resolved.startswith("cuda")
    known = (None, *getattr(classifier.network, "precisions", ("float32",)))
    ignored = {"precision": precision not in known, "compile": compile}
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
        channels_last=inside and (cuda or convolutional(classifier)),
        compiled=(fast and is_module(classifier.network)) if compile is None else compile,
        noise_compiled=cuda if compile is None else compile,
        clamp=clamp,
    )
    if score_threshold is not None:
        score_limit(classifier, score_threshold)  # refuses scores of an undeclared kind
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
    gpu = not str(device).startswith("cpu")
    if device is None:  # asking torch takes seconds
        found = which("nvidia-smi") is not None or Path("/dev/nvidiactl").exists()
        gpu = found and find_spec("torch") is not None
    return gpu or any(option not in (None, False, *classifier.network.precisions) for option in options)  # type: ignore[attr-defined]


def resolve_device(classifier: Classifier, device: Any) -> str:
    """The device; by default CUDA if available. One that cannot be used is refused; arrays are on the CPU."""
    if classifier.takes == "tensors":
        from multiguard.smooth.torch_engine import torch_device

        return str(torch_device(device))
    if classifier.takes == "arrays" and device is not None and str(device) != "cpu":
        raise InvalidInputError(f"device is {device}, and {classifier.name} takes arrays, on the CPU; leave it out")
    return "cpu" if device is None else str(device)


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises `InvalidInputError` unless the value is one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def score_threshold(rule: RuleName, given: float | None) -> float | None:
    """The probability from which the base classifier returns a label; None for the top-k rule, unless one is given."""
    return _DEFAULT_SCORE_THRESHOLD if rule == "threshold" and given is None else given
