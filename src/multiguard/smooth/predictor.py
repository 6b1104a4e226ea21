"""Predictions for image files, with or without a calibration: labels without ground truth, each with its radius."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from multiguard.certify import label_radii
from multiguard.certify.noise import parse_noise
from multiguard.certify.rules import Rule
from multiguard.data.image import decode_image, read_image_bytes
from multiguard.data.image_folder import find_images
from multiguard.errors import ImageError, ImageFailure, InvalidInputError, ModelError
from multiguard.evaluate.calibration import (
    NOT_PROMISED,
    Calibration,
    check_classifier,
    check_size,
    classifier_facts,
    read_calibration,
)
from multiguard.io.rounding import plain, plain_percent
from multiguard.models import spec as spec_names
from multiguard.models.config import ModelConfig
from multiguard.models.loading import chosen_noise, load_model, square_size, unnamed_labels
from multiguard.smooth.config import PredictConfig, named_noise, score_threshold
from multiguard.smooth.engine import Image
from multiguard.smooth.noise_source import resolve_seed
from multiguard.smooth.prediction import LiveVotes, Prediction
from multiguard.smooth.smoother import Smoother

Outcome = Prediction | ImageFailure
_MANY = 10  # images, for which a model is compiled
_RECALL, _RADIUS = 0.8, 0.5  # of a built-in model's calibration


class Calibrated:
    """On average the labels of `predict` hold the promised fraction of the true ones, even under attack.

    The calibration says under which attack, over what the average is, and with which confidence. The attacker may know
    all of it, and the classifier, but not the draws, which are fresh in each call.

    Args:
        smoother: The classifier with the noise that the calibration is of.
        calibration: The calibration; of another classifier or noise, `InvalidInputError`.

    >>> import numpy as np
    >>> from multiguard import Smoother
    >>> draws = np.random.default_rng(0)
    >>> inputs, true = draws.normal(size=(60, 3)), draws.integers(3, size=60)
    >>> inputs[np.arange(60), true] += 4
    >>> smoother = Smoother(lambda rows: rows.copy(), sigma=0.5, labels=["cat", "dog", "emu"])
    >>> options = {"draws": 100, "noise_seed": 0, "progress": False}
    >>> smoother.calibrate((inputs, [[label] for label in true]), recall=0.8, radius=0.5, **options)
    On average the returned labels hold at least 80 % of the true labels of an image, even under any ...
    """

    def __init__(self, smoother: Smoother, calibration: Calibration) -> None:
        if smoother.classifier.num_labels is None:
            raise InvalidInputError("smoother has no label names yet; give Smoother(..., labels=...) those calibrated")
        check_classifier(calibration, classifier_facts(execution_facts(smoother)), smoother.classifier.label_names)
        self.smoother, self.calibration = smoother, calibration

    def predict(
        self, image: Image, *, alpha: float = 0.001, noise_seed: int | None = None, image_id: str | None = None
    ) -> Prediction:
        """The labels that enough of the fresh draws have, and up to which radius each stays frequent enough.

        The radii of all labels hold at once with probability at least 1 - alpha over the draws: a label stays one that
        the classifier returns in at least about h / m of its draws, as the calibration asks.

        Args:
            image: The image, as for `Smoother.votes`.
            alpha: The probability that any radius is wrong.
            noise_seed: The seed of the noise, for a copy of an earlier answer; by default a random one. What is
                promised holds only if the sender of the image does not know it.
            image_id: The id of the image, which keys the noise; by default the hash of the image.
        """
        live = LiveCalibrated(self, image, alpha=alpha, noise_seed=noise_seed, image_id=image_id)
        live.draw(self.calibration.draws)
        return live.prediction()

    def __repr__(self) -> str:
        own = self.calibration
        return "\n".join(each for each in (own.sentence, own.how, own.expected) if each)


class LiveCalibrated(LiveVotes):
    """The draws of `Calibrated.predict` as they come; `labels` is None before the last of them."""

    def __init__(self, calibrated: Calibrated, image: Image, **options: Any) -> None:
        super().__init__(calibrated.smoother, image, calibrated.calibration.rule, **options)
        self._calibration = calibrated.calibration
        if self._calibration.image_size is not None:
            check_size(self._calibration, np.shape(self._image)[-2:])
        self.most_draws = self._calibration.draws

    def draw(self, draws: int) -> None:
        """Make further draws, but no more than the calibration says in all."""
        own, left = self._calibration, self._calibration.draws - self.draws
        if left > 0:
            self._add("certify", min(draws, left))
        if self.draws == own.draws:
            self.labels = own.chosen(self.hits)

    def prediction(self) -> Prediction:
        """The labels with their radii; all draws must be made."""
        own, labels = self._calibration, self.labels
        if labels is None:
            raise InvalidInputError(f"{self.draws} of the {own.draws} draws are made; draw the others first")
        self.check_state()
        # Each of all c labels has a level, so that the draws that choose some of them may certify these.
        options: dict[str, Any] = {"num_labels": own.num_labels, "noise": self._smoother.noise}
        radii = np.empty(0)
        if labels:
            radii = label_radii(self.votes, labels, own.rule, alpha=self.alpha / own.num_labels, **options)
        return Prediction(
            labels,
            tuple(radii.tolist()),
            tuple((-np.sort(-radii)).tolist()),
            names=tuple(own.label_names[label] for label in labels),
            noise_seed=self.noise_seed,
            image_id=self.image_id,
            draws=self.draws,
            promise=own.sentence,
        )


@dataclass(frozen=True)
class Predictor:
    """The smoothed classifier that images are predicted with."""

    smoother: Smoother
    rule: Rule  # which labels it returns
    size: int | None  # height and width that images are resized to; None if it takes any
    model: str  # how the model was named
    config: PredictConfig  # the draws, the noise seed and the confidence
    calibrated: Calibrated | None = None  # if the labels come with a promise

    def predict(self, file: Path) -> Prediction:
        """The prediction for an image file; its id, which keys the noise, is the hash of the bytes of the file."""
        content = read_image_bytes(file)
        image, digest = decode_image(content, self.size, source=file), hashlib.sha256(content).hexdigest()
        config = self.config
        options: dict[str, Any] = {"alpha": config.alpha, "noise_seed": config.noise_seed, "image_id": digest}
        if self.calibrated is not None:
            return self.calibrated.predict(image, **options)
        radii = config.radii or self.smoother.noise.default_radii
        options |= {"pilot_draws": config.pilot_draws, "draws": config.draws, "radii": radii}
        return self.smoother.predict(image, self.rule, **options)

    @property
    def facts(self) -> dict[str, Any]:
        """How images are predicted, as JSON: the model, the rule or the promise, and the noise."""
        config, settings, noise = self.config, self.smoother.settings, self.smoother.noise
        found: dict[str, Any] = {"model": self.model, "size": self.size, "precision": settings.precision}
        found |= {"noise": str(noise), "attacker": noise.attacker}
        if settings.score_threshold is not None:
            found["score_threshold"] = settings.score_threshold
        if not noise.enumerated:
            found |= {"alpha": config.alpha, "noise_seed": config.noise_seed}
        if self.calibrated is None:
            drawn = {} if noise.enumerated else {"pilot_draws": config.pilot_draws, "max_draws": config.draws}
            return found | {"rule": self.rule.name, **self.rule.options, **drawn}
        own = self.calibrated.calibration
        found |= {"rule": "calibrated", "k_prime": own.k_prime, "least_hits": own.least_hits, "draws": own.draws}
        found |= {"recall": own.config.recall, "radius": own.config.radius, "confidence": own.config.confidence}
        return found | {"promise": own.sentence, "radius_words": self.radius_words, "not_promised": NOT_PROMISED}

    @property
    def radius_words(self) -> str:
        """What the radius of the promise means in plain terms; empty without a promise, or without an attack."""
        if self.calibrated is None or not (radius := self.calibrated.calibration.config.radius):
            return ""
        noise, size = self.smoother.noise, None if self.size is None else (self.size, self.size)
        return f"R = {plain(radius)}: {''.join(found)}" if (found := noise.size_words(radius, size)) else ""


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
    named = [file for path in files for file in (map(path.joinpath, find_images(path)) if path.is_dir() else [path])]
    seeded, few = config.replace(noise_seed=resolve_seed(config.noise_seed)), len(named) < _MANY
    predictor = make_predictor(model, seeded, compile=False if few else None)
    outcomes = list[tuple[Path, Outcome]]()
    for file in named:
        progress(len(outcomes), len(named))
        try:
            outcome: Outcome = predictor.predict(file)
        except (ImageError, ModelError) as error:
            outcome = ImageFailure(str(file), getattr(error, "reason", str(error)))
        outcomes.append((file, outcome))
        on_image(predictor, file, outcome)
    return predictor, outcomes


def make_predictor(
    model: ModelConfig,
    config: PredictConfig,
    *,
    compile: bool | None = None,  # noqa: A002 - that of `Smoother`
) -> Predictor:
    """Load the model and smooth it as the options say; a mistake in them raises `MultiGuardError`.

    `compile=False` starts at once, which few draws are worth.
    """
    model, named = model.resolved(), model.spec
    calibration = _calibration(model.spec, config)
    own = calibration.noise if calibration else named_noise(config.sigma, config.noise)
    text = chosen_noise(model, own)
    voted = calibration.image_size if calibration else None
    wanted = config.size or model.size or (voted[0] if voted else None)
    classifier = load_model(model, size=wanted)
    if classifier.num_labels is None:
        raise unnamed_labels(model.spec)
    side, labels = square_size(classifier, model.spec, wanted), len(classifier.label_names)
    if calibration:
        check_size(calibration, None if side is None else (side, side))
    rule = calibration.rule if calibration else config.rule_for(labels)
    limit = score_threshold(config.rule or "top-k", config.score_threshold)
    how: dict[str, Any] = {"score_threshold": limit, "clamp": config.clamp, "precision": config.precision}
    if calibration:
        how = {name: calibration.classifier.get(name) for name in how}
    ranks = None if rule.k_prime is None else min(max(rule.k_prime, 1), labels)
    noise = parse_noise(text, None if side is None else (side, side))
    smoother = Smoother(classifier, noise=noise, k_max=ranks, device=config.device, compile=compile, **how)
    if calibration and how["precision"] == "float32" and smoother.settings.device.startswith("cuda"):
        from multiguard.smooth.torch_engine import forbid_tf32

        forbid_tf32()
    if calibration and config.calibration is None:  # of both forms of a built-in model, whose weights are compared
        state = {"classifier_hash": smoother.classifier.state_hash()}
        calibration = calibration.replace(classifier=calibration.classifier | state)
    calibrated = Calibrated(smoother, calibration) if calibration else None
    return Predictor(smoother, rule, side, named, config, calibrated)


def _calibration(spec: str, config: PredictConfig) -> Calibration | None:
    """The calibration that is named, or that of the model; None for a rule without a promise."""
    if config.calibration is not None:
        return read_calibration(config.calibration)
    if config.own_rule:
        return None
    recall, radius = config.recall or _RECALL, _RADIUS if config.radius is None else config.radius
    known, wanted = shipped_calibrations(spec), shipped_name(recall, radius)
    if wanted in known:
        return read_calibration(known[wanted])
    if not config.names_calibration:
        return None
    has = f"it has {', '.join(known)}" if known else "it has none"
    raise InvalidInputError(
        f"recall: {spec} has no calibration {wanted}; {has}. multiguard calibrate makes one from votes on labelled "
        "images, for --calibration"
    )


def execution_facts(smoother: Smoother) -> SimpleNamespace:
    """What votes of a classifier would record of it and of its execution, as far as a calibration compares it."""
    classifier = smoother.classifier
    hashes = {"weights_hash": classifier.weights_hash, "code_hash": classifier.code_hash}
    return SimpleNamespace(**hashes, classifier_hash=classifier.state_hash(), **vars(smoother.settings))


def shipped_calibrations(spec: str) -> dict[str, Path]:
    """The calibrations that a built-in model has, by their names, such as recall-80-radius-0.5; other models have none.

    Their votes were drawn with the network in torch, in float32 without TF32. The form of the network that needs no
    torch has the same weights, and scores that differ by rounding only: the promise is taken to be about both, and
    `docs/serve.md` says how few draws that decides.
    """
    found = (spec_names.BUILT_IN / spec).glob("calibrations/*.json") if spec in spec_names.built_in_names() else ()
    return {file.stem: file for file in sorted(found)}


def shipped_name(recall: float, radius: float) -> str:
    """The name of a built-in model's calibration.

    >>> shipped_name(0.8, 0.5)
    'recall-80-radius-0.5'
    """
    return f"recall-{plain_percent(recall)}-radius-{plain(radius)}"
