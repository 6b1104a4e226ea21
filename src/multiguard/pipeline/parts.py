"""The parts of recipes and commands: each field is declared once, with its type, default, help and range."""

from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from multiguard.certify.arguments import check_radii
from multiguard.certify.noise import BandAblation, Noise
from multiguard.certify.noise_arguments import NO_NOISE
from multiguard.certify.rules import Rule, RuleName, make_rule
from multiguard.data.image import MAX_SIDE
from multiguard.data.source import Source
from multiguard.errors import InvalidInputError
from multiguard.pipeline.part_fields import Help, check_fields
from multiguard.train.hyperparameters import Hyperparameters, default_text, given_noise

_CHANNELS = 3
_DEFAULT_DRAWS, _DEFAULT_MAX_DRAWS = 1000, 10_000
_DEFAULT_PILOT_DRAWS = 100
_DEFAULT_K = 5
_DEFAULT_THRESHOLD = 0.5
_MOST_DRAWS = 100_000_000
_MOST_THREADS = 1024
_MOST_EFFORT = 1_000_000  # steps, starts, copies and tries of an attack

_DEVICES = ("cpu", "cuda", "cuda:N", "mps", "xpu", "xpu:N")
Device = Annotated[str | None, Help("Where the model runs, such as cpu or cuda:1 [a GPU, if any].", forms=_DEVICES)]
Precision = Annotated[
    Literal["float32", "bfloat16", "float16"] | None, Help("Arithmetic of the model [float32; on a GPU bfloat16].")
]
Clamp = Annotated[bool, Help("Clamp noisy images to [0, 1] first.")]
ScoreThreshold = Annotated[
    float | None, Help("For threshold: the probability from which the model returns a label [0.5].", above=0, below=1)
]
SigmaOption = Annotated[float | None, Help("Gaussian noise, for pixels in [0, 1] [the model folder's].")]
NoiseOption = Annotated[
    str | None, Help("Other noise: uniform:0.5 (l1), pixels:45 (changed pixels) or band:4 (a patch).")
]
OnError = Annotated[Literal["stop", "record"], Help("At a bad image: stop, or record it and continue.")]


@dataclass(frozen=True)
class DataPart:
    """The images to vote on, and the dataset that training reads.

    >>> DataPart("digits", images=100).source().images
    100
    """

    name: Annotated[str, Help("voc2007, coco, nuswide, folder or digits.", name="data")]
    root: Annotated[Path | None, Help("The folder that holds the dataset; digits need none.")] = None
    split: Annotated[str | None, Help("The split to vote on [test; coco and nuswide: val].")] = None
    images: Annotated[int | None, Help("A random sample of so many images [all].", least=1)] = None
    seed: Annotated[int, Help("Seed of that sample.", least=0)] = 0
    size: Annotated[int | None, Help("Height and width of the images [the model's].", least=1, most=MAX_SIDE)] = None
    table: Annotated[Path | None, Help("The CSV of labels (folder, nuswide), if not the default one.")] = None
    separator: Annotated[str | None, Help("The separator of labels in a CSV field (folder) [;].")] = None
    difficult: Annotated[bool, Help("Count difficult-only labels as present (voc2007).")] = False
    labelled: Annotated[bool, Help("Let pilot draws choose the labels; a folder needs no CSV.", "no-labels")] = True

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def options(self) -> dict[str, object]:
        """The further options of the dataset that are given."""
        named = {"table": self.table, "separator": self.separator, "difficult": self.difficult or None}
        return {name: value for name, value in named.items() if value is not None}

    def source(self, size: int | None = None) -> Source:
        """The images to vote on, resized to `size`; None for the model's own size."""
        return Source(self.name, self.root, self.split, size, self.images, self.seed, self.options, self.labelled)


def named_noise(sigma: float | None, noise: str | None) -> str | None:
    """The text of the noise to vote with that a command or a recipe names by one of the two; None by neither.

    >>> named_noise(0.5, None)
    'gaussian:0.5'
    """
    if (text := given_noise(sigma, noise)) == NO_NOISE:
        given = f"sigma is {sigma}" if noise is None else f"noise is {noise}"
        raise InvalidInputError(f"{given}; without noise there is no certificate: take one above 0")
    return text


def _optional(name: str, text: str) -> tuple[str, Any, Any]:
    """A hyperparameter that may be left to the dataset's default."""
    kind = get_type_hints(Hyperparameters)[name]
    declared = Help(f"{text.rstrip('.')} [{default_text(name)}].", "batch-size" if name == "batch" else None)
    return name, Annotated[kind | None, declared], field(default=None)


_OptionalHyperparameters: Any = make_dataclass(
    "_OptionalHyperparameters",
    [_optional(known.name, known.metadata["help"]) for known in fields(Hyperparameters)],
    frozen=True,
)


@dataclass(frozen=True)
class TrainPart(_OptionalHyperparameters):  # type: ignore[misc]
    """How to train the base classifier: every hyperparameter, and what to train on. None means the default.

    The noise in training and validation is the recipe's unless `noise` or `val_noise` says otherwise; `sigma` and
    `val_sigma` are Gaussian noise by its standard deviation.

    >>> TrainPart(model="cnn", epochs=2).chosen()
    {'epochs': 2}
    """

    sigma: Annotated[float | None, Help("Gaussian noise on training images; 0 for none [0.5].", least=0)] = None
    val_sigma: Annotated[float | None, Help("Gaussian noise on validation images [sigma].", least=0)] = None
    model: Annotated[
        str | None,
        Help("cnn, lite:0, unet:40+lite:2, timm:NAME, hf:FOLDER, module:function or a model folder [digits: cnn]."),
    ] = None
    weights: Annotated[str | None, Help("A .safetensors or .pth file, or 'pretrained' to download timm's.")] = None
    labels: Annotated[Path | None, Help("Label names of the head in that file, one per line, in score order.")] = None
    split: Annotated[str | None, Help("The split to train on [train, or all of a folder without splits].")] = None
    val_split: Annotated[str | None, Help("The split to validate on [matches --split, or a held-out tenth].")] = None
    images: Annotated[int | None, Help("Train on a random sample of so many images [all].")] = None
    val_images: Annotated[int | None, Help("Validate on a random sample of so many images [all].")] = None
    denoiser: Annotated[Path | None, Help("FFDNet weights for a denoiser in front of the network.")] = None
    teacher: Annotated[Path | None, Help("A model folder whose scores of clean images are learnt too.")] = None
    cache: Annotated[bool, Help("Keep decoded images in the run folder.")] = False
    workers: Annotated[int | None, Help("Decoding threads [one per core].", least=1, most=_MOST_THREADS)] = None
    half: Annotated[bool, Help("Write the weights in half precision.")] = False
    compile: Annotated[bool, Help("Compile the forward and backward pass.")] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def chosen(self) -> dict[str, Any]:
        """The hyperparameters that are given, by name."""
        names = [*(known.name for known in fields(Hyperparameters)), "sigma", "val_sigma"]
        named = {name: getattr(self, name) for name in names}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class ModelPart:
    """A model that exists, and what it does not say of itself.

    >>> ModelPart("onnx:model.onnx", output="logits").spec
    'onnx:model.onnx'
    """

    spec: Annotated[
        str, Help("coco-0.5, a model folder, FILE.onnx, timm:NAME, hf:FOLDER or module:function.", name="model")
    ]
    labels: Annotated[Path | None, Help("Label names, one per line, in score order [the model's].")] = None
    weights: Annotated[Path | None, Help("A weights file (timm, module), or a trained folder (module).")] = None
    output: Annotated[Literal["logits", "probabilities"] | None, Help("What the scores are, for thresholds.")] = None
    mean: Annotated[tuple[float, ...] | None, Help("Channel means, as in 0.48,0.46,0.41 [the model's].")] = None
    std: Annotated[
        tuple[float, ...] | None, Help("Channel standard deviations, as in 0.23,0.22,0.23 [the model's].")
    ] = None
    detector: Annotated[
        str | None,
        Help("The ONNX file is a detector: yolox, yolov5, yolov8, yolov10, scores:OUTPUT or nms:SCORES,CLASSES."),
    ] = None
    denoiser: Annotated[Path | None, Help("FFDNet weights for a denoiser in front of the model.")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, _CHANNELS):
                raise InvalidInputError(f"{name} has {len(values)} numbers; images have {_CHANNELS} channels")


@dataclass(frozen=True)
class VotePart:
    """How the classifier is sampled; None means the default, which may depend on the device.

    >>> VotePart(draws="adaptive", radii=(0.5,)).most_draws
    10000
    """

    draws: Annotated[
        int | Literal["adaptive"] | None,
        Help("n per image, or adaptive: as many as needed [1000; band: one per column].", least=1, most=_MOST_DRAWS),
    ] = None
    max_draws: Annotated[int | None, Help("The most adaptive draws per image [10000].", least=1, most=_MOST_DRAWS)] = (
        None
    )
    radii: Annotated[tuple[float, ...], Help("A radius at which adaptive draws try to prove more.", "radius")] = ()
    pilot_draws: Annotated[
        int | None, Help("Draws that choose the labels [100 with --no-labels].", least=0, most=_MOST_DRAWS)
    ] = None
    rule: Annotated[RuleName, Help("top-k: the model ranks labels; threshold: it returns a set of them.")] = "top-k"
    score_threshold: ScoreThreshold = None
    noise_seed: Annotated[int | None, Help("Seed of the noise [random, or that of the votes to resume].")] = None
    k_max: Annotated[int | None, Help("Ranked labels kept per draw: the largest k' [10, or all].", least=1)] = None
    batch_size: Annotated[int | None, Help("Noisy images per batch [what fits].", least=1)] = None
    device: Device = None
    precision: Precision = None
    clamp: Clamp = False
    shard_images: Annotated[int, Help("Images per file: what an interruption costs at most.", least=1)] = 64
    readers: Annotated[int, Help("Threads that decode images.", "workers", least=1, most=_MOST_THREADS)] = 2
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        check_fields(self)
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
        return _DEFAULT_DRAWS if self.draws is None else self.draws

    def for_noise(self, noise: Noise) -> "VotePart":
        """The same with the number of draws filled in; a band ablation has one per column, and no others."""
        if not isinstance(noise, BandAblation):
            return replace(self, draws=_DEFAULT_DRAWS) if self.draws is None else self
        if self.draws not in (None, noise.columns) or self.pilot_draws:
            given = f"draws is {self.draws}" if self.draws not in (None, noise.columns) else "pilot_draws is given"
            raise InvalidInputError(f"{given}, and {noise} votes once for each of {noise.columns} bands; leave it out")
        return replace(self, draws=noise.columns, pilot_draws=0)

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


@dataclass(frozen=True)
class PredictPart:
    """How images are predicted, and with which confidence.

    >>> PredictPart(rule="threshold").rule_for(10)
    Threshold(t=0.5)
    """

    k: Annotated[int | None, Help("The most labels to predict [5, or all].")] = None
    k_prime: Annotated[int | None, Help("How many labels the model returns per draw [half of k, rounded up].")] = None
    rule: Annotated[RuleName, Help("top-k: the k most frequent labels; threshold: all frequent ones.")] = "top-k"
    threshold: Annotated[float | None, Help("For threshold: the fraction of draws that a label needs [0.5].")] = None
    score_threshold: ScoreThreshold = None
    sigma: SigmaOption = None
    noise: NoiseOption = None
    draws: Annotated[
        int, Help("The most draws that certify; an image takes what it needs.", least=1, most=_MOST_DRAWS)
    ] = 120
    pilot_draws: Annotated[int, Help("Further draws that choose the labels.", least=1, most=_MOST_DRAWS)] = 30
    radii: Annotated[
        tuple[float, ...], Help("A radius that draws try to prove [four that fit the noise].", "radius")
    ] = ()
    alpha: Annotated[float, Help("The probability that anything said of an image is wrong.")] = 0.001
    noise_seed: Annotated[int | None, Help("Seed of the noise [random].")] = None
    size: Annotated[int | None, Help("Height and width of the images [the model's].", least=1, most=MAX_SIDE)] = None
    device: Device = None
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Help("Arithmetic of the model [bfloat16 where the device has it, or float32]."),
    ] = None
    clamp: Clamp = False

    def __post_init__(self) -> None:
        check_fields(self)

    def rule_for(self, num_labels: int) -> Rule:
        """The smoothed classifier, with defaults for what is left open."""
        k, k_prime, threshold = self.k, self.k_prime, self.threshold
        if self.rule == "top-k":
            k = min(_DEFAULT_K, num_labels) if k is None else k
            k_prime = (k + 1) // 2 if k_prime is None else k_prime
        elif threshold is None:
            threshold = _DEFAULT_THRESHOLD
        return make_rule(self.rule, k=k, k_prime=k_prime, threshold=threshold)


@dataclass(frozen=True)
class AttackPart:
    """Which images to attack, how hard, and with which confidence.

    >>> AttackPart(radii=(0.5,)).beta
    0.001
    """

    attacks: Annotated[
        tuple[Literal["pgd", "random"], ...], Help("pgd (by gradients), random (needs none) or both.", "attack")
    ] = ("pgd", "random")
    radii: Annotated[
        tuple[float, ...], Help("A radius to attack at, in the unit of the noise [six that fit it].", "radius")
    ] = ()
    own_radii: Annotated[bool, Help("Also attack each image at its own certified radii.")] = False
    images: Annotated[int | None, Help("Attack a random sample of so many images [all with labels].", least=1)] = None
    steps: Annotated[int, Help("Gradient steps per start.", least=1, most=_MOST_EFFORT)] = 20
    copies: Annotated[
        int, Help("Noisy copies that a gradient, or a try, is averaged over.", least=1, most=_MOST_EFFORT)
    ] = 8
    starts: Annotated[
        int, Help("Starts of pgd per radius; all but the first are random.", least=1, most=_MOST_EFFORT)
    ] = 2
    tries: Annotated[
        int, Help("Perturbations that the random search tries per radius.", least=1, most=_MOST_EFFORT)
    ] = 60
    draws: Annotated[int, Help("Fresh draws that evaluate each perturbation.", least=1, most=_MOST_DRAWS)] = 500
    beta: Annotated[float, Help("The probability of calling a sound certificate broken.", above=0, below=1)] = 0.001
    box: Annotated[bool, Help("Keep perturbed images in [0, 1]; certificates hold without it.")] = False
    seed: Annotated[int, Help("Seed of every random choice.")] = 0
    root: Annotated[Path | None, Help("Where the images are [where they were voted on].")] = None
    device: Device = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class VerifyPart:
    """Which votes are drawn again to verify them.

    >>> VerifyPart(images=3).draws
    100
    """

    images: Annotated[int, Help("Draw votes of a random sample of so many images again.", least=1)] = 10
    draws: Annotated[int, Help("Draws of each of them, from a random one on.", least=1, most=_MOST_DRAWS)] = 100
    seed: Annotated[int | None, Help("Seed of that sample [random].", least=0)] = None
    root: Annotated[Path | None, Help("Where the images are [where they were voted on].")] = None
    device: Device = None

    def __post_init__(self) -> None:
        check_fields(self)
