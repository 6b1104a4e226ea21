"""Predictions for image files: labels without ground truth, each with its certified radius."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiguard.certify.noise import Noise, parse_noise
from multiguard.certify.rules import Rule
from multiguard.data.image import decode_image, read_image_bytes
from multiguard.data.image_folder import find_images
from multiguard.errors import ImageError, ImageFailure, ModelError
from multiguard.models import Classifier
from multiguard.models.config import ModelConfig
from multiguard.models.loading import chosen_noise, load_model, square_size, unnamed_labels
from multiguard.models.spec import parse_spec
from multiguard.smooth import Prediction, Smoother
from multiguard.smooth.config import PredictConfig, named_noise
from multiguard.smooth.noise_source import resolve_seed
from multiguard.smooth.settings import cpu_has_bfloat16, resolve_device, score_threshold

# On a CPU that computes in bfloat16: as on a GPU, and half the time.
_QUICK: dict[str, Any] = {"precision": "bfloat16", "channels_last": True, "batch_size": 6}


@dataclass(frozen=True)
class PredictJob:
    """Which images, with which classifier, and how."""

    images: tuple[Path, ...]  # files, or folders of them
    model: ModelConfig
    part: PredictConfig = field(default_factory=PredictConfig)


@dataclass(frozen=True)
class Predictor:
    """The smoothed classifier that images are predicted with."""

    smoother: Smoother
    rule: Rule  # which labels it returns
    size: int | None  # height and width that images are resized to; None if it takes any
    model: str  # how the model was named
    part: PredictConfig  # the draws, the noise seed and the confidence


@dataclass(frozen=True)
class ImagePrediction:
    """The prediction for one image file."""

    file: Path
    sha256: str  # the hash of its bytes, which keys the noise
    prediction: Prediction  # the labels with their radii
    noise: Noise  # which says what a radius measures


Outcome = ImagePrediction | ImageFailure  # an image failure has the path of its file as id


@dataclass(frozen=True, eq=False)
class PredictResult:
    """The smoothed classifier, and what became of each image."""

    predictor: Predictor  # its part has the noise seed
    outcomes: tuple[Outcome, ...]  # in the order of the files

    @property
    def images(self) -> list[ImagePrediction]:
        """The predictions."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, ImagePrediction)]

    @property
    def failures(self) -> list[ImageFailure]:
        """The images that could not be predicted."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, ImageFailure)]


def predict(
    job: PredictJob,
    on_image: Callable[[Outcome], None] = lambda outcome: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PredictResult:
    """With probability at least 1 - alpha, for each image alone, everything said of it is right.

    The noise follows from an image's bytes and the noise seed: with the same seed a renamed file has the same
    prediction.

    Args:
        job: The images, the classifier and how.
        on_image: Called with each prediction or failure, as soon as it is there.
        progress: Called with the images done, and all images.
    """
    files = [file for path in job.images for file in _image_files(path)]
    predictor = make_predictor(job.model, job.part.replace(noise_seed=resolve_seed(job.part.noise_seed)))
    outcomes: list[Outcome] = []
    for file in files:
        progress(len(outcomes), len(files))
        outcomes.append(_try_image(predictor, file))
        on_image(outcomes[-1])
    return PredictResult(predictor, tuple(outcomes))


def _image_files(path: Path) -> list[Path]:
    """The file, or all images in a folder and its subfolders."""
    return [path / name for name in find_images(path)] if path.is_dir() else [path]


def make_predictor(model: ModelConfig, part: PredictConfig) -> Predictor:
    """Load the model and smooth it as the options say; a mistake in them raises `MultiGuardError`."""
    model, named = model.resolved(), model.spec
    text = chosen_noise(model, named_noise(part.sigma, part.noise))
    classifier = load_model(model, size=part.size, noise=text)
    if classifier.num_labels is None:
        raise unnamed_labels(model.spec)
    rule = part.rule_for(len(classifier.label_names))
    side = square_size(classifier, model.spec, part.size or model.size)
    noise = parse_noise(text, None if side is None else (side, side))
    smoother = _smoother(part, classifier, rule, noise, quick_on_cpu(model.spec, part.device))
    return Predictor(smoother, rule, side, named, part)


def _smoother(part: PredictConfig, classifier: Classifier, rule: Rule, noise: Noise, quick: bool) -> Smoother:
    ranks = min(max(rule.k_prime, 1), len(classifier.label_names)) if rule.k_prime is not None else None
    more: dict[str, Any] = _QUICK if quick and part.precision is None else {"precision": part.precision}
    return Smoother(
        classifier,
        noise=noise,
        k_max=ranks,
        score_threshold=score_threshold(part.rule, part.score_threshold),
        device=part.device,
        clamp=part.clamp,
        **more,
    )


def quick_on_cpu(spec: str, device: str | None) -> bool:
    """Whether the model is one of our own networks, and runs on a processor that computes in bfloat16."""
    return parse_spec(spec).kind == "folder" and resolve_device(device).type == "cpu" and cpu_has_bfloat16()


def _try_image(predictor: Predictor, file: Path) -> Outcome:
    """The prediction for an image, or why there is none."""
    try:
        return _predict_image(predictor, file)
    except ImageError as error:
        return ImageFailure(str(file), error.reason)
    except ModelError as error:
        return ImageFailure(str(file), str(error))


def _predict_image(predictor: Predictor, file: Path) -> ImagePrediction:
    content = read_image_bytes(file)
    image, digest = decode_image(content, predictor.size, source=file), hashlib.sha256(content).hexdigest()
    part, noise = predictor.part, predictor.smoother.settings.noise
    how: dict[str, Any] = {name: getattr(part, name) for name in ("pilot_draws", "draws", "alpha", "noise_seed")}
    try:
        prediction = predictor.smoother.predict(
            image, predictor.rule, radii=part.radii or noise.default_radii, image_id=digest, **how
        )
    except ModelError as error:
        raise ModelError(str(error).removeprefix(f"image {digest!r}").lstrip(",: ")) from error
    return ImagePrediction(file, digest, prediction, predictor.smoother.settings.noise)
