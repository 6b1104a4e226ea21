"""Predicting images by their files: labels without ground truth, each with what is proved of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from multiguard.data.image import read_image
from multiguard.data.listed import read_lines
from multiguard.errors import DataError, ImageError, ModelError
from multiguard.evaluate import AnySetting, Setting
from multiguard.io.files import file_checksum
from multiguard.models import Classifier
from multiguard.pipeline.asked import asked_setting
from multiguard.pipeline.recipe import ModelPart
from multiguard.pipeline.voting import load_model, settled_sigma, square_size
from multiguard.smooth import Precision, Prediction, Smoother
from multiguard.smooth.dataset import OnError, checked_on_error
from multiguard.votes import ImageFailure, Rule

_DEFAULT_K = 5
_DEFAULT_THRESHOLD = 0.5


@dataclass(frozen=True)
class PredictJob:
    """Which images, with which classifier, and how sure.

    Attributes:
        images: The image files.
        model: The base classifier.
        rule: Which smoothed classifier: the k labels of largest probability, or those of probability t or more.
        k: For the top-k rule, how many labels to predict; None for 5, or all where there are fewer.
        k_prime: For the top-k rule, how many labels the base classifier returns; None for half of k, rounded up.
        threshold: For the threshold rule t; None for 0.5.
        score_threshold: For the threshold rule, the probability at which the base classifier returns a label; None for
            0.5.
        sigma: The noise; None for the one that the model folder was made for.
        draws: The draws that certify.
        pilot_draws: The draws that choose the labels.
        alpha: The probability that anything said of an image is wrong.
        seed: The seed of the noise.
        size: Height and width of the images; None for the model's own.
        device: Where the model runs; None for a GPU, if any.
        precision: What it runs in; None for what suits the device.
        clamp: Whether noisy images are clamped to [0, 1] first.
        on_error: Where an image cannot be predicted: "stop", or "record" it and go on with the others.
    """

    images: tuple[Path, ...]
    model: ModelPart
    rule: Rule = "top-k"
    k: int | None = None
    k_prime: int | None = None
    threshold: float | None = None
    score_threshold: float | None = None
    sigma: float | None = None
    draws: int = 1000
    pilot_draws: int = 100
    alpha: float = 0.001
    seed: int = 0
    size: int | None = None
    device: str | None = None
    precision: Precision | None = None
    clamp: bool = False
    on_error: OnError = "stop"


@dataclass(frozen=True)
class Predicted:
    """An image file and what is said of it.

    Attributes:
        file: The file.
        sha256: The hash of its bytes, which keys the noise.
        names: The names of the predicted labels.
        prediction: The labels with their radii.
    """

    file: Path
    sha256: str
    names: tuple[str, ...]
    prediction: Prediction


@dataclass(frozen=True)
class Predictions:
    """What was asked, every value settled, and the answer for each image.

    Attributes:
        setting: Which smoothed classifier, how sure, from how many draws.
        score_threshold: For the threshold rule, the probability at which the base classifier returns a label.
        sigma: The noise.
        images: The images in the order given.
        failures: Those of which nothing can be said, by the name of their file, and why.
    """

    setting: AnySetting
    score_threshold: float | None
    sigma: float
    images: tuple[Predicted, ...]
    failures: tuple[ImageFailure, ...]


def predict(job: PredictJob, progress: Callable[[int, int], None] | None = None) -> Predictions:
    """With probability at least 1 - alpha, for each image alone, everything said of it is right.

    The noise follows from an image's bytes and the seed: a renamed file has the same answer.
    """
    if checked_on_error(job.on_error) == "stop":
        _require_readable(job.images)
    labels = None if job.model.labels is None else tuple(read_lines(job.model.labels))
    classifier = load_model(job.model, job.size, labels)
    setting = _settled(job, len(classifier.label_names))
    sigma = settled_sigma(job.model.spec, job.sigma)
    smoother = _smoother(job, classifier, setting, sigma)
    size = square_size(classifier, job.model.spec, job.size)
    found: list[Predicted | ImageFailure] = []
    for file in job.images:
        found.append(_attempted(job, smoother, file, size, setting))
        if progress is not None:
            progress(len(found), len(job.images))
    images = tuple(one for one in found if isinstance(one, Predicted))
    failures = tuple(one for one in found if isinstance(one, ImageFailure))
    if not images:
        raise DataError("; ".join(f"{failure.image_id}: {failure.reason}" for failure in failures))
    return Predictions(setting, smoother.settings.score_threshold, sigma, images, failures)


def _require_readable(files: tuple[Path, ...]) -> None:
    """Pass only if every file can be decoded; else all that cannot are named."""
    faults: list[str] = []
    for file in files:
        try:
            read_image(file)
        except ImageError as error:
            faults.append(str(error))
    if faults:
        raise DataError("; ".join(faults))


def _settled(job: PredictJob, labels: int) -> AnySetting:
    """What is asked of each image, the usual values in place of those left open."""
    k, k_prime, threshold = job.k, job.k_prime, job.threshold
    if job.rule == "top-k":
        k = min(_DEFAULT_K, labels) if k is None else k
        k_prime = (k + 1) // 2 if k_prime is None else k_prime
    elif threshold is None:
        threshold = _DEFAULT_THRESHOLD
    return asked_setting(job.rule, k=k, k_prime=k_prime, threshold=threshold, alpha=job.alpha, draws=job.draws)


def _smoother(job: PredictJob, classifier: Classifier, setting: AnySetting, sigma: float) -> Smoother:
    ranks = min(max(setting.k_prime, 1), len(classifier.label_names)) if isinstance(setting, Setting) else None
    return Smoother(
        classifier,
        sigma=sigma,
        rule=job.rule,
        k_max=ranks,
        score_threshold=job.score_threshold,
        device=job.device,
        clamp=job.clamp,
        precision=job.precision,
    )


def _attempted(
    job: PredictJob, smoother: Smoother, file: Path, size: int | None, setting: AnySetting
) -> Predicted | ImageFailure:
    """What is said of an image, or why nothing can be; where a stop is asked for, that is raised."""
    try:
        return _predicted(job, smoother, file, size, setting)
    except ImageError as error:
        if job.on_error == "stop":
            raise
        return ImageFailure(str(file), error.reason)
    except ModelError as error:
        if job.on_error == "stop":
            raise ModelError(f"{file}: {error}") from error
        return ImageFailure(str(file), str(error))


def _predicted(job: PredictJob, smoother: Smoother, file: Path, size: int | None, setting: AnySetting) -> Predicted:
    image, digest = read_image(file, size), file_checksum(file)
    try:
        said = smoother.predict(image, **asdict(setting), pilot_draws=job.pilot_draws, seed=job.seed, image_id=digest)
    except ModelError as error:
        raise ModelError(str(error).removeprefix(f"image {digest!r}").lstrip(",: ")) from error
    names = smoother.classifier.label_names
    return Predicted(file, digest, tuple(names[label] for label in said.labels), said)
