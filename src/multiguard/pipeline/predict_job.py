"""Predictions for image files: labels without ground truth, each with its certified radius."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from multiguard.certify.rules import Rule, TopK
from multiguard.data.image import read_image
from multiguard.errors import DataError, ImageError, ImageFailure, ModelError
from multiguard.evaluate import CertifyConfig
from multiguard.io.files import file_checksum
from multiguard.models import Classifier
from multiguard.pipeline.job_model import load_model, resolve_sigma, score_threshold, square_size, unnamed_labels
from multiguard.pipeline.parts import ModelPart, PredictPart
from multiguard.pipeline.wrap_job import fitting_size, unwrap
from multiguard.smooth import Prediction, Smoother
from multiguard.smooth.noise import resolve_seed


@dataclass(frozen=True)
class PredictJob:
    """Which images, with which classifier, and how."""

    images: tuple[Path, ...]
    model: ModelPart
    part: PredictPart = field(default_factory=PredictPart)


@dataclass(frozen=True)
class Predictor:
    """The smoothed classifier that images are predicted with."""

    smoother: Smoother
    rule: Rule  # which labels it returns
    size: int | None  # height and width that images are resized to; None if it takes any
    model: str  # how the model was named
    part: PredictPart  # the draws and the confidence


@dataclass(frozen=True)
class ImagePrediction:
    """The prediction for one image file."""

    file: Path
    sha256: str  # the hash of its bytes, which keys the noise
    names: tuple[str, ...]  # the names of the predicted labels
    prediction: Prediction  # the labels with their radii


@dataclass(frozen=True)
class PredictResult:
    """The resolved smoothed classifier, and its prediction for each image."""

    config: CertifyConfig  # the smoothed classifier, alpha and the number of draws
    score_threshold: float | None  # for the threshold rule
    sigma: float
    seed: int  # the seed of the noise, of all images
    images: tuple[ImagePrediction, ...]  # the predictions, in the order of the files
    failures: tuple[ImageFailure, ...]  # the images that could not be predicted, by the name of their file


def predict(job: PredictJob, progress: Callable[[int, int], None] | None = None) -> PredictResult:
    """With probability at least 1 - alpha, for each image alone, everything said of it is right.

    The noise follows from an image's bytes and the seed: with a given seed, a renamed file has the same prediction.
    """
    if job.part.on_error == "stop":
        _check_readable(job.images)
    predictor = make_predictor(job.model, job.part)
    seed = resolve_seed(job.part.seed)
    predictor = replace(predictor, part=replace(job.part, seed=seed))
    images: list[ImagePrediction] = []
    failures: list[ImageFailure] = []
    for number, file in enumerate(job.images, 1):
        outcome = _try_image(predictor, file)
        if isinstance(outcome, ImageFailure):
            failures.append(outcome)
        else:
            images.append(outcome)
        if progress is not None:
            progress(number, len(job.images))
    if not images:
        raise DataError("; ".join(f"{failure.image_id}: {failure.reason}" for failure in failures))
    config, settings = CertifyConfig(predictor.rule, job.part.alpha, job.part.draws), predictor.smoother.settings
    return PredictResult(config, settings.score_threshold, settings.sigma, seed, tuple(images), tuple(failures))


def make_predictor(model: ModelPart, part: PredictPart) -> Predictor:
    """Load the model and smooth it as the options say; a mistake in them raises `MultiGuardError`."""
    spec, card = unwrap(model)
    size = fitting_size(card, part.size)
    sigma = card.sigma if card is not None and part.sigma is None else part.sigma
    classifier = load_model(spec, size)
    if card is not None:
        card.check(classifier)
    if classifier.num_labels is None:
        raise unnamed_labels(spec.spec)
    rule = part.rule_for(len(classifier.label_names))
    sigma, _ = resolve_sigma(spec, sigma)
    return Predictor(
        _smoother(part, classifier, rule, sigma), rule, square_size(classifier, spec.spec, size), model.spec, part
    )


def _check_readable(files: tuple[Path, ...]) -> None:
    """Raises `DataError` that names every file that cannot be decoded."""
    errors = []
    for file in files:
        try:
            read_image(file)
        except ImageError as error:
            errors.append(str(error))
    if errors:
        raise DataError("; ".join(errors))


def _smoother(part: PredictPart, classifier: Classifier, rule: Rule, sigma: float) -> Smoother:
    ranks = min(max(rule.k_prime, 1), len(classifier.label_names)) if isinstance(rule, TopK) else None
    return Smoother(
        classifier,
        sigma=sigma,
        k_max=ranks,
        score_threshold=score_threshold(part.rule, part.score_threshold),
        device=part.device,
        clamp=part.clamp,
        precision=part.precision,
    )


def _try_image(predictor: Predictor, file: Path) -> ImagePrediction | ImageFailure:
    """The prediction for an image, or why there is none; raises where `on_error` says stop."""
    try:
        return _predict_image(predictor, file)
    except ImageError as error:
        if predictor.part.on_error == "stop":
            raise
        return ImageFailure(str(file), error.reason)
    except ModelError as error:
        if predictor.part.on_error == "stop":
            raise ModelError(f"{file}: {error}") from error
        return ImageFailure(str(file), str(error))


def _predict_image(predictor: Predictor, file: Path) -> ImagePrediction:
    image, digest = read_image(file, predictor.size), file_checksum(file)
    how = {name: getattr(predictor.part, name) for name in ("pilot_draws", "draws", "alpha", "seed")}
    try:
        prediction = predictor.smoother.predict(image, predictor.rule, image_id=digest, **how)
    except ModelError as error:
        raise ModelError(str(error).removeprefix(f"image {digest!r}").lstrip(",: ")) from error
    names = predictor.smoother.classifier.label_names
    return ImagePrediction(file, digest, tuple(names[label] for label in prediction.labels), prediction)
