"""The parts of a recipe. Each field is declared once, with its help and range: recipes and commands are made of them."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from multiguard.certify import look_plan
from multiguard.certify.arguments import checked_radii
from multiguard.certify.rules import Rule, RuleName, make_rule
from multiguard.data.source import Source
from multiguard.errors import InvalidInputError
from multiguard.train.hyperparameters import Hyperparameters, default_text

_CHANNELS = 3
_DEFAULT_MAX_DRAWS = 10_000
_DEFAULT_PILOT_DRAWS = 100
_DEFAULT_K = 5
_DEFAULT_THRESHOLD = 0.5


def option(text: str, default: Any = MISSING, **more: Any) -> Any:
    """A field with its help text.

    Args:
        text: What the field means; it ends in the default in [brackets] where that is not the field's own.
        default: Its default; none if it is required.
        **more: `least`, the least number allowed; `above`, the number it must exceed; `below`, the number it must stay
            under; `name`, the option on the command line, if not the field's name.
    """
    return field(default=default, metadata={"help": text, **more})


def check_ranges(config: Any) -> None:
    """Raises `InvalidInputError` unless every number, alone or in a tuple, is in the range that its field declares."""
    for known in fields(config):
        value = getattr(config, known.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float) and not _in_range(one, known.metadata):
                raise InvalidInputError(f"{known.name} is {one}; expected {_range_text(known.metadata)}")


def _in_range(value: float, limits: Mapping[str, Any]) -> bool:
    return (
        ("least" not in limits or value >= limits["least"])
        and ("above" not in limits or value > limits["above"])
        and ("below" not in limits or value < limits["below"])
    )


def _range_text(limits: Mapping[str, Any]) -> str:
    if "least" in limits:
        return f"{limits['least']} or more"
    if "below" in limits:
        return f"a number strictly between {limits['above']} and {limits['below']}"
    return f"a number above {limits['above']}"


@dataclass(frozen=True)
class DataPart:
    """The images to vote on, and the dataset that training reads.

    >>> DataPart("digits", images=100).source().images
    100
    """

    name: str = field(metadata={"help": "voc2007, coco, nuswide, folder or digits.", "name": "data"})
    root: Path | None = option("The folder that holds the dataset; digits need none.", None)
    split: str | None = option("The split to vote on [test; coco and nuswide: val].", None)
    images: int | None = option("Vote on a random sample of so many images [all].", None, least=1)
    seed: int = option("Seed of that sample.", 0, least=0)
    size: int | None = option("Height and width of the images [the model's].", None, least=1)
    table: Path | None = option("The CSV of labels (folder, nuswide), if not the default one.", None)
    separator: str | None = option("The separator of labels in a CSV field (folder) [;].", None)
    difficult: bool = option("Count difficult-only labels as present (voc2007).", False)
    labelled: bool = option(
        "The images have no labels, or none to certify: pilot draws choose them. A folder then needs no CSV.",
        True,
        name="no-labels",
    )

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def options(self) -> dict[str, object]:
        """The further options of the dataset that are given."""
        named = {"table": self.table, "separator": self.separator, "difficult": self.difficult or None}
        return {name: value for name, value in named.items() if value is not None}

    def source(self, size: int | None = None) -> Source:
        """The images to vote on, resized to `size`; None for the model's own size."""
        return Source(self.name, self.root, self.split, size, self.images, self.seed, self.options, self.labelled)


def _optional(name: str, text: str) -> tuple[str, Any, Any]:
    """A hyperparameter that may be left to the dataset's default."""
    return (
        name,
        get_type_hints(Hyperparameters)[name] | None,
        option(f"{text.rstrip('.')} [{default_text(name)}].", None),
    )


_OptionalHyperparameters: Any = make_dataclass(
    "_OptionalHyperparameters",
    [_optional(known.name, known.metadata["help"]) for known in fields(Hyperparameters)],
    frozen=True,
)


@dataclass(frozen=True)
class TrainPart(_OptionalHyperparameters):  # type: ignore[misc]
    """How to train the base classifier: every hyperparameter, and what to train on. None means the default.

    The noise in training and validation is the recipe's sigma unless `sigma` or `val_sigma` says otherwise.

    >>> TrainPart(model="cnn", epochs=2).chosen()
    {'epochs': 2}
    """

    model: str | None = option("cnn, cnn:WIDTH, timm:NAME or a model folder to start from [digits: cnn].", None)
    weights: str | None = option("A .safetensors or .pth file, or 'pretrained' to download timm's.", None)
    split: str | None = option("The split to train on [train, or all of a folder without splits].", None)
    val_split: str | None = option(
        "The split to validate on [the one that belongs to --split, or a held-out tenth].", None
    )
    images: int | None = option("Train on a random sample of so many images [all].", None)
    val_images: int | None = option("Validate on a random sample of so many images [all].", None)
    denoiser: Path | None = option("FFDNet weights: a denoiser in front of the network, from training on.", None)
    cache: bool = option("Keep decoded images in the run folder.", False)
    workers: int | None = option("Decoding threads [one per core].", None)
    compile: bool = option("Compile the forward and backward pass.", False)

    def chosen(self) -> dict[str, Any]:
        """The hyperparameters that are given, by name."""
        named = {known.name: getattr(self, known.name) for known in fields(Hyperparameters)}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class ModelPart:
    """A model that exists, and what it does not say of itself.

    >>> ModelPart("onnx:model.onnx", output="logits").spec
    'onnx:model.onnx'
    """

    spec: str = field(
        metadata={"help": "A model folder, timm:NAME, hf:FOLDER, onnx:FILE or module:function.", "name": "model"}
    )
    labels: Path | None = option(
        "A file of label names, one per line, in the order of the scores [the dataset's].", None
    )
    weights: Path | None = option("A .safetensors or .pth file (timm).", None)
    output: Literal["logits", "probabilities"] | None = option(
        "What the scores are: logits or probabilities (onnx, module).", None
    )
    mean: tuple[float, ...] | None = option(
        "Subtracted per channel in the model, as in 0.48,0.46,0.41 [its own].", None
    )
    std: tuple[float, ...] | None = option("Divided by per channel in the model, as in 0.23,0.22,0.23 [its own].", None)

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, _CHANNELS):
                raise InvalidInputError(f"{name} has {len(values)} numbers; images have {_CHANNELS} channels")


@dataclass(frozen=True)
class VotePart:
    """How the classifier is sampled; None means the default, which may depend on the device.

    >>> VotePart(draws="adaptive", radii=(0.5,)).most_draws
    10000
    """

    draws: int | Literal["adaptive"] = option(
        "n, the noisy copies of each image; or adaptive, as many as its certificate needs.", 1000, least=1
    )
    max_draws: int | None = option("The most adaptive draws per image [10000].", None, least=1)
    radii: tuple[float, ...] = option(
        "A radius at which adaptive draws try to prove more; repeat for several.", (), name="radius"
    )
    pilot_draws: int | None = option(
        "Further draws that choose the labels to certify [100 with --no-labels].", None, least=0
    )
    rule: RuleName = option(
        "What the model returns: top-k, its first labels; threshold, every label above a score.", "top-k"
    )
    score_threshold: float | None = option(
        "For --rule threshold: the probability from which the model returns a label [0.5].", None, above=0, below=1
    )
    seed: int = option("Seed of the noise.", 0)
    k_max: int | None = option("Ranked labels kept per draw: the largest k' [10, or all].", None, least=1)
    batch_size: int | None = option("Noisy images per batch [what fits].", None, least=1)
    device: str | None = option("Where the model runs, such as cpu or cuda:1 [a GPU, if any].", None)
    precision: Literal["float32", "bfloat16", "float16"] | None = option(
        "float32, bfloat16 or float16 [float32; on a GPU bfloat16].", None
    )
    clamp: bool = option("Clamp noisy images to [0, 1] first.", False)
    shard_images: int = option("Images per file of votes; an interruption costs the files under way.", 64, least=1)
    readers: int = option("Threads that decode images.", 2, least=1)
    on_error: Literal["stop", "record"] = option(
        "If an image cannot be voted on: stop, or record it and continue with the others.", "stop"
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.rule == "top-k" and self.score_threshold is not None:
            raise InvalidInputError("score_threshold belongs to the threshold rule; the top-k rule ranks labels")
        if self.rule == "threshold" and self.k_max is not None:
            raise InvalidInputError("k_max belongs to the top-k rule; the threshold rule keeps every label it returns")
        if self.adaptive:
            self._check_adaptive()
        elif self.radii or self.max_draws is not None:
            raise InvalidInputError(f"radii and max_draws belong to adaptive draws, and draws is {self.draws}")

    @property
    def adaptive(self) -> bool:
        """Whether each image takes as many draws as its certificate needs."""
        return self.draws == "adaptive"

    @property
    def most_draws(self) -> int:
        """The most draws that one image takes."""
        if self.draws == "adaptive":
            return _DEFAULT_MAX_DRAWS if self.max_draws is None else self.max_draws
        return self.draws

    def pilots(self, labelled: bool) -> int:
        """How many draws per image choose its labels."""
        default = 0 if labelled else _DEFAULT_PILOT_DRAWS
        return default if self.pilot_draws is None else self.pilot_draws

    def _check_adaptive(self) -> None:
        if not self.radii:
            raise InvalidInputError(
                "adaptive draws stop once nothing more can be proved at the given radii, and none is given; name one or "
                "more, such as --radius 0.5 (vote.radii: [0.5] in a recipe)"
            )
        checked_radii(self.radii)
        look_plan(self.most_draws)


@dataclass(frozen=True)
class PredictPart:
    """How images are predicted, and with which confidence.

    >>> PredictPart(rule="threshold").rule_for(10)
    Threshold(t=0.5)
    """

    k: int | None = option("How many labels to predict [5, or all].", None)
    k_prime: int | None = option("How many labels the model returns per draw [half of k, rounded up].", None)
    rule: RuleName = option("top-k: the k labels returned most often; threshold: all returned often enough.", "top-k")
    threshold: float | None = option(
        "For --rule threshold: the fraction of draws from which a label is predicted [0.5].", None
    )
    score_threshold: float | None = option(
        "For --rule threshold: the probability from which the model returns a label [0.5].", None
    )
    sigma: float | None = option("The noise, for pixels in [0, 1] [the model folder's].", None)
    draws: int = option("Draws that certify.", 1000)
    pilot_draws: int = option("Further draws that choose the labels.", 100)
    alpha: float = option("The probability that anything said of an image is wrong.", 0.001)
    seed: int = option("Seed of the noise.", 0)
    size: int | None = option("Height and width of the images [the model's].", None)
    device: str | None = option("Where the model runs, such as cpu or cuda:1 [a GPU, if any].", None)
    precision: Literal["float32", "bfloat16", "float16"] | None = option(
        "float32, bfloat16 or float16 [float32; on a GPU bfloat16].", None
    )
    clamp: bool = option("Clamp noisy images to [0, 1] first.", False)
    on_error: Literal["stop", "record"] = option(
        "If an image cannot be predicted: stop, or record it and continue with the others.", "stop"
    )

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
    """Which images to attack, at which radii, and with which confidence.

    >>> AttackPart(radii=(0.5,)).beta
    0.001
    """

    radii: tuple[float, ...] = option(
        "A norm that the attack may use; repeat for several [sigma/2, sigma ... 3 sigma].", (), name="radius"
    )
    own_radii: bool = option("Also attack each image at its own certified radii.", False)
    images: int | None = option("Attack a random sample of so many images [all that have labels].", None, least=1)
    beta: float = option("The probability, per image, of calling a sound certificate broken.", 0.001, above=0, below=1)
    root: Path | None = option("Where the images are [where they were voted on].", None)
    device: str | None = option("Where the model runs, such as cpu or cuda:1 [a GPU, if any].", None)

    def __post_init__(self) -> None:
        check_ranges(self)
