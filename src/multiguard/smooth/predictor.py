"""Predictions for image files: labels without ground truth, each with its certified radius."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from multiguard.certify.noise import Noise, parse_noise
from multiguard.certify.rules import Rule
from multiguard.data.image import decode_image, read_image_bytes
from multiguard.data.image_folder import find_images
from multiguard.errors import ImageError, ImageFailure, ModelError
from multiguard.models import Classifier
from multiguard.models.config import ModelConfig
from multiguard.models.loading import chosen_noise, load_model, square_size, unnamed_labels
from multiguard.smooth.config import PredictConfig, named_noise
from multiguard.smooth.noise_source import resolve_seed
from multiguard.smooth.prediction import Prediction
from multiguard.smooth.settings import score_threshold
from multiguard.smooth.smoother import Smoother

Outcome = Prediction | ImageFailure


@dataclass(frozen=True)
class Predictor:
    """The smoothed classifier that images are predicted with."""

    smoother: Smoother
    rule: Rule  # which labels it returns
    size: int | None  # height and width that images are resized to; None if it takes any
    model: str  # how the model was named
    config: PredictConfig  # the draws, the noise seed and the confidence

    def predict(self, file: Path) -> Prediction:
        """The prediction for an image file; its id, which keys the noise, is the hash of the bytes of the file."""
        content = read_image_bytes(file)
        image, digest = decode_image(content, self.size, source=file), hashlib.sha256(content).hexdigest()
        config = self.config
        try:
            return self.smoother.predict(
                image,
                self.rule,
                pilot_draws=config.pilot_draws,
                draws=config.draws,
                radii=config.radii or self.smoother.noise.default_radii,
                alpha=config.alpha,
                noise_seed=config.noise_seed,
                image_id=digest,
            )
        except ModelError as error:
            raise ModelError(str(error).removeprefix(f"image {digest!r}").lstrip(",: ")) from error


def predict(
    config: PredictConfig,
    model: ModelConfig,
    files: Iterable[Path],
    *,
    on_image: Callable[[Predictor, Path, Outcome], object] = lambda predictor, file, outcome: None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> tuple[Predictor, list[tuple[Path, Outcome]]]:
    """With probability at least 1 - alpha, for each image alone, everything said of it is right.

    The noise follows from an image's bytes and the noise seed: with the same seed a renamed file has the same
    prediction. Returns the smoothed classifier, whose config has the noise seed, and what became of each file: an image
    failure has its path as id.

    Args:
        config: How images are predicted.
        model: The classifier.
        files: Image files, or folders of them.
        on_image: Called with each file and its prediction or failure, as soon as it is there.
        progress: Called with the images done, and all images.
    """
    named = [file for path in files for file in _image_files(path)]
    predictor = make_predictor(model, config.replace(noise_seed=resolve_seed(config.noise_seed)))
    outcomes = list[tuple[Path, Outcome]]()
    for file in named:
        progress(len(outcomes), len(named))
        try:
            outcome: Outcome = predictor.predict(file)
        except ImageError as error:
            outcome = ImageFailure(str(file), error.reason)
        except ModelError as error:
            outcome = ImageFailure(str(file), str(error))
        outcomes.append((file, outcome))
        on_image(predictor, file, outcome)
    return predictor, outcomes


def _image_files(path: Path) -> list[Path]:
    """The file, or all images in a folder and its subfolders."""
    return [path / name for name in find_images(path)] if path.is_dir() else [path]


def make_predictor(model: ModelConfig, config: PredictConfig) -> Predictor:
    """Load the model and smooth it as the options say; a mistake in them raises `MultiGuardError`."""
    model, named = model.resolved(), model.spec
    text = chosen_noise(model, named_noise(config.sigma, config.noise))
    classifier = load_model(model, size=config.size, noise=text)
    if classifier.num_labels is None:
        raise unnamed_labels(model.spec)
    rule = config.rule_for(len(classifier.label_names))
    side = square_size(classifier, model.spec, config.size or model.size)
    noise = parse_noise(text, None if side is None else (side, side))
    smoother = _smoother(config, classifier, rule, noise)
    return Predictor(smoother, rule, side, named, config)


def _smoother(config: PredictConfig, classifier: Classifier, rule: Rule, noise: Noise) -> Smoother:
    ranks = min(max(rule.k_prime, 1), len(classifier.label_names)) if rule.k_prime is not None else None
    return Smoother(
        classifier,
        noise=noise,
        k_max=ranks,
        score_threshold=score_threshold(config.rule, config.score_threshold),
        device=config.device,
        clamp=config.clamp,
        precision=config.precision,
    )
