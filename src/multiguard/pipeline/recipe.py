"""The recipe of a whole run: which pictures, which model, how it is voted on, certified and reported."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Parameter


@dataclass(frozen=True)
class DataPart:
    """Which pictures are voted on, and what training reads of the same dataset.

    Attributes:
        name: voc2007, coco, nuswide, folder or digits.
        root: The folder that holds the dataset; digits need none.
        split: What is voted on; None for the dataset's usual test split.
        images: A random part of so many pictures; None for all.
        seed: Which part that is.
        size: Height and width of the pictures; None for the network's own.
        table: The CSV of labels, if not the usual one.
        separator: What stands between two labels in a CSV field.
        difficult: Whether difficult-only labels count as present (voc2007).
    """

    name: str
    root: Path | None = None
    split: str | None = None
    images: int | None = None
    seed: int = 0
    size: int | None = None
    table: Path | None = None
    separator: str | None = None
    difficult: bool | None = None

    @property
    def options(self) -> dict[str, object]:
        """The dataset's further options, those that are given."""
        named = {"table": self.table, "separator": self.separator, "difficult": self.difficult}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class TrainPart:
    """How the base classifier is trained; None stands for the dataset's usual value.

    Attributes:
        model: cnn, cnn:WIDTH, timm:NAME or a model folder to start from.
        weights: A weights file, or "pretrained" to download timm's.
        split: What to train on.
        val_split: What to validate on.
        images: A random part of so many training pictures.
        val_images: A random part of so many validation pictures.
        denoiser: FFDNet weights: train without noise, denoise first.
        cache: Whether decoded pictures are kept in the run folder.
        workers: Decoding threads.
        compile: Whether to compile the forward and backward pass.
        sigma: Noise on training pictures; None for the recipe's sigma.
        val_sigma: Noise on validation pictures; None for the recipe's sigma.
        epochs: Passes over the pictures.
        batch: Pictures a step.
        lr: Peak learning rate.
        warmup: Share of the steps in which the rate climbs.
        weight_decay: L2 on the weights.
        dropout: Share of the head's inputs that a step leaves out.
        loss: asl or bce.
        ramp_epochs: Epochs in which sigma climbs.
        ema: Decay of the moving average of the weights.
        clip: Largest gradient norm.
        crop: Least share of the area that a crop keeps.
        shift: Most pixels a picture is moved.
        flip: Whether pictures are mirrored at random.
        seed: Decides order, crops, noise and first weights.
    """

    model: str | None = None
    weights: str | None = None
    split: str | None = None
    val_split: str | None = None
    images: int | None = None
    val_images: int | None = None
    denoiser: Path | None = None
    cache: bool = False
    workers: int | None = None
    compile: bool = False
    sigma: float | None = None
    val_sigma: float | None = None
    epochs: int | None = None
    batch: int | None = None
    lr: float | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    loss: str | None = None
    ramp_epochs: int | None = None
    ema: float | None = None
    clip: float | None = None
    crop: float | None = None
    shift: int | None = None
    flip: bool | None = None
    seed: int | None = None


@dataclass(frozen=True)
class ModelPart:
    """A model that exists: the folder that training wrote, timm:, hf:, onnx: or module:function.

    Attributes:
        spec: What to load.
        labels: A file with a label name a line, in the order of the scores; None for the dataset's labels.
        weights: For timm, a weights file.
        output: Whether the scores are logits or probabilities, where the model does not say.
        mean: Subtracted inside the classifier, a channel.
        std: Divided by inside the classifier, a channel.
    """

    spec: str
    labels: Path | None = None
    weights: Path | None = None
    output: Literal["logits", "probabilities"] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(frozen=True)
class VotePart:
    """How the classifier is sampled; None follows the device.

    Attributes:
        draws: n, the noisy copies of each picture.
        seed: The seed of the noise.
        k_max: How many ranked labels of each draw are kept.
        batch_size: Noisy pictures at a time.
        device: Where to run.
        precision: float32, bfloat16 or float16.
        clamp: Whether the noisy picture is clamped to [0, 1] first.
        shard_images: Pictures in a file of votes: what an interruption can cost at most.
        readers: Threads that decode pictures.
    """

    draws: int = 1000
    seed: int = 0
    k_max: int | None = None
    batch_size: int | None = None
    device: str | None = None
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    clamp: bool = False
    shard_images: int = 64
    readers: int = 2


@dataclass(frozen=True)
class CertifyPart:
    """What is asked of the votes.

    Attributes:
        k: How many labels the smoothed classifier returns.
        k_prime: How many labels the base classifier returns for a draw.
        alpha: The probability of a wrong certificate of a picture.
        draws: The first so many draws; None for all.
        methods: The certificates to compare.
        radius_to: The largest radius of the curves; None for 3 sigma.
        radius_step: The step between two radii; None for sigma / 20.
        bands: The confidence level of bands over pictures; None for no bands.
    """

    k: int
    k_prime: int
    alpha: float = 0.001
    draws: int | None = None
    methods: tuple[Method, ...] = ("joint",)
    radius_to: float | None = None
    radius_step: float | None = None
    bands: float | None = None


@dataclass(frozen=True)
class SweepPart:
    """One parameter at a time around the setting: the first four from the same votes, the others from runs apart.

    Attributes:
        k: Values of k.
        k_prime: Values of k'.
        n: Values of n, the first so many draws.
        alpha: Values of alpha.
        sigma: Values of sigma: each is trained and voted on by itself.
        training_noise: Noise in training, voted on at the recipe's sigma; 0 for training without noise.
    """

    k: tuple[int, ...] = ()
    k_prime: tuple[int, ...] = ()
    n: tuple[int, ...] = ()
    alpha: tuple[float, ...] = ()
    sigma: tuple[float, ...] = ()
    training_noise: tuple[float, ...] = ()

    @property
    def vary(self) -> dict[Parameter, tuple[float, ...]]:
        """What varies over one set of votes."""
        named: dict[Parameter, tuple[float, ...]] = {
            "k": self.k,
            "k_prime": self.k_prime,
            "n": self.n,
            "alpha": self.alpha,
        }
        return {name: values for name, values in named.items() if values}


@dataclass(frozen=True)
class ReportPart:
    """What the page shows.

    Attributes:
        title: The page's title; None for one that names the data.
        gallery: The most pictures in the gallery; None for all.
        pictures: Whether the page holds pictures at all.
    """

    title: str | None = None
    gallery: int | None = None
    pictures: bool = True


@dataclass(frozen=True)
class RunRecipe:
    """Everything that decides a run, from the pictures to the page.

    Attributes:
        data: Which pictures.
        sigma: The noise, in pixels of [0, 1].
        certify: What is asked of the votes.
        train: How the model is trained; None where `model` names one.
        model: A model that exists; None where `train` makes one.
        vote: How it is sampled.
        sweep: What is varied.
        report: What the page shows.
    """

    data: DataPart
    sigma: float
    certify: CertifyPart
    train: TrainPart | None = None
    model: ModelPart | None = None
    vote: VotePart = field(default_factory=VotePart)
    sweep: SweepPart = field(default_factory=SweepPart)
    report: ReportPart = field(default_factory=ReportPart)

    def __post_init__(self) -> None:
        if (self.train is None) == (self.model is None):
            given = "neither" if self.train is None else "both"
            raise InvalidInputError(f"{given} of train and model given; a recipe trains a model or names one")
        if self.model is not None and self.sweep.training_noise:
            raise InvalidInputError("sweep.training_noise trains anew, and model names a trained one; give one of them")
        for name, value in (("sigma", self.sigma), *(("sweep.sigma", one) for one in self.sweep.sigma)):
            if not value > 0:
                raise InvalidInputError(f"{name} is {value}; without noise there is no certificate: take one above 0")
