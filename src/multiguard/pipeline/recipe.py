"""The recipe of a whole run: which images, which model, how it is voted on, certified and reported."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from multiguard.data.source import FOLDER, Source
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig
from multiguard.pipeline.asked import CertifyPart, SweepPart, VotePart, check_asked, check_least, check_most

_CHANNELS = 3


@dataclass(frozen=True)
class DataPart:
    """Which images are voted on, and what training reads of the same dataset.

    Attributes:
        name: voc2007, coco, nuswide, folder or digits.
        root: The folder that holds the dataset; digits need none.
        split: What is voted on; None for the dataset's usual test split.
        images: A random part of so many images; None for all.
        seed: Which part that is.
        size: Height and width of the images; None for the network's own.
        table: The CSV of labels, if not the usual one.
        separator: What stands between two labels in a CSV field.
        difficult: Whether difficult-only labels count as present (voc2007).
        labelled: Whether the true labels of the images voted on are certified; if not, those that pilot draws choose
            are, and a folder needs no CSV: every image in it is taken.
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
    labelled: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, "images", "size")
        check_least(self, 0, "seed")

    @property
    def options(self) -> dict[str, object]:
        """The dataset's further options, those that are given."""
        named = {"table": self.table, "separator": self.separator, "difficult": self.difficult}
        return {name: value for name, value in named.items() if value is not None}

    def source(self, size: int | None) -> Source:
        """The images that are voted on.

        Args:
            size: Height and width to squash each image to; None for the network's own.
        """
        return Source(self.name, self.root, self.split, size, self.images, self.seed, self.options, self.labelled)


@dataclass(frozen=True)
class TrainPart:
    """How the base classifier is trained; None stands for the dataset's usual value.

    Attributes:
        model: cnn, cnn:WIDTH, timm:NAME or a model folder to start from.
        weights: A weights file, or "pretrained" to download timm's.
        split: What to train on.
        val_split: What to validate on.
        images: A random part of so many training images.
        val_images: A random part of so many validation images.
        denoiser: FFDNet weights: a denoiser in front, in training and after.
        cache: Whether decoded images are kept in the run folder.
        workers: Decoding threads.
        compile: Whether to compile the forward and backward pass.
        sigma: Noise on training images; None for the recipe's sigma.
        val_sigma: Noise on validation images; None for the recipe's sigma.
        epochs: Passes over the images.
        batch: Images a step.
        lr: Peak learning rate.
        warmup: Share of the steps in which the rate climbs.
        weight_decay: L2 on the weights.
        dropout: Share of the head's inputs that a step leaves out.
        loss: asl or bce.
        ramp_epochs: Epochs in which sigma climbs.
        ema: Decay of the moving average of the weights.
        clip: Largest gradient norm.
        crop: Least share of the area that a crop keeps.
        shift: Most pixels an image is moved.
        flip: Whether images are mirrored at random.
        keep: Which epoch's weights are left: best or last.
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
    keep: Literal["best", "last"] | None = None
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

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, _CHANNELS):
                raise InvalidInputError(f"{name} has {len(values)} numbers; images have {_CHANNELS} channels")


@dataclass(frozen=True)
class ReportPart:
    """What the page shows.

    Attributes:
        title: The page's title; None for one that names the data.
        gallery: The most images in the gallery; None for all.
        images: Whether the page holds images at all.
    """

    title: str | None = None
    gallery: int | None = None
    images: bool = True

    def __post_init__(self) -> None:
        check_least(self, 0, "gallery")


@dataclass(frozen=True)
class RunRecipe:
    """Everything that decides a run, from the images to the page.

    Attributes:
        data: Which images.
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
        check_asked(self.vote, self.certify, self.sweep)
        self._check_labels()
        for name, value in (("sigma", self.sigma), *(("sweep.sigma", one) for one in self.sweep.sigma)):
            if not value > 0:
                raise InvalidInputError(f"{name} is {value}; without noise there is no certificate: take one above 0")

    @property
    def config(self) -> CertifyConfig:
        """What one certificate is about, under the rule of the votes."""
        return self.certify.config(self.vote.rule)

    def require_labels(self, count: int) -> None:
        """Pass only if all that is asked can be asked of so many labels; known before hours of work are put in."""
        certify, sweep = self.certify, self.sweep
        asked = {
            "certify.k": (certify.k,),
            "certify.k_prime": (certify.k_prime,),
            "sweep.k": sweep.k,
            "sweep.k_prime": sweep.k_prime,
        }
        check_most(asked, count, f"there are {count} labels")

    def _check_labels(self) -> None:
        """Without labels there is nothing to train on, and pilot draws must choose what is certified."""
        if self.data.labelled:
            return
        if self.data.name == FOLDER and self.train is not None:
            raise InvalidInputError("data.labelled is false, and a folder without labels trains no model; name a model")
        if self.vote.pilot_draws == 0:
            raise InvalidInputError("vote.pilot_draws is 0, and without labels pilot draws choose what is certified")
