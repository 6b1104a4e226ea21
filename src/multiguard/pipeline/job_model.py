"""The models of jobs: by the name that a user gives, or as a votes folder records them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from multiguard.certify.noise import Noise
from multiguard.certify.noise_arguments import parse_noise
from multiguard.certify.rules import RuleName
from multiguard.data.label_table import read_lines
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.ranks import this_rank
from multiguard.io.records import convert
from multiguard.models import Classifier, load
from multiguard.models.backbone import input_size
from multiguard.models.config import ModelConfig
from multiguard.models.denoiser import denoise_first, denoiser_sigma
from multiguard.models.model_folder import read_card
from multiguard.models.spec import parse_spec
from multiguard.results import Results

_DEFAULT_SCORE_THRESHOLD = 0.5


def load_model(model: ModelConfig, size: int | None = None, noise: str | None = None) -> Classifier:
    """The classifier of a recipe or a command; only the user's own code may leave its labels unnamed.

    Args:
        model: Which one, and what it does not say of itself.
        size: Height and width of its images; None for its own.
        noise: The text of the noise that a denoiser in front removes, that of the smoothing.
    """
    kind = parse_spec(model.spec).kind
    labels = None if model.labels is None else tuple(read_lines(model.labels))
    if labels is None and kind in ("timm", "onnx"):
        raise unnamed_labels(model.spec)
    side = None if size is None or _card_folder(model) is not None else (size, size)
    more: dict[str, Any] = {name: getattr(model, name) for name in ("weights", "output", "mean", "std")}
    classifier = load(model.spec, labels=labels, image_size=side, **more)
    if model.denoiser is None:
        return classifier
    if noise is None:
        raise InvalidInputError(
            f"--denoiser {model.denoiser} removes the noise of one sigma; give --sigma, such as 0.1"
        )
    return denoise_first(classifier, model.denoiser, denoiser_sigma(parse_noise(noise, classifier.image_size)))


def unnamed_labels(spec: str) -> InvalidInputError:
    """The error where nothing says which score belongs to which label."""
    file = "give --labels FILE, one name per line in the order of the scores"
    return InvalidInputError(f"{spec} does not say which score belongs to which label; {file}")


def _card_folder(model: ModelConfig) -> Path | None:
    """The model folder whose card says everything, named itself or as the weights of the user's code."""
    parsed = parse_spec(model.spec)
    if parsed.kind == "code" and model.weights is not None and model.weights.is_dir():
        return model.weights
    return Path(parsed.target) if parsed.kind == "folder" else None


def square_size(classifier: Classifier, spec: str, size: int | None) -> int | None:
    """The height and width to resize images to for this classifier; None if it takes any.

    Args:
        classifier: The classifier.
        spec: How it was named.
        size: The requested size; one that the classifier does not take is refused.
    """
    own = classifier.image_size
    if own is None:
        return size if size is not None or parse_spec(spec).kind != "timm" else input_size(spec)
    if own[0] != own[1]:
        raise InvalidInputError(f"{spec} takes images of {own[0]}x{own[1]}; only square images are supported here")
    if size not in (None, own[0]):
        raise InvalidInputError(f"{spec} takes images of {own[0]}x{own[0]}; leave out the size {size}")
    return own[0]


def folder_noise(model: ModelConfig) -> Noise | None:
    """The noise that the model folder was made for; None if the model does not say, or was trained without noise."""
    folder = _card_folder(model)
    return None if folder is None else read_card(folder).noise


def chosen_noise(model: ModelConfig, *texts: str | None) -> str:
    """The text of the noise to use: the first that is given, or else that of the model folder."""
    own = folder_noise(model)
    chosen = next((text for text in texts if text is not None), None if own is None else str(own))
    if chosen is None:
        raise InvalidInputError(
            f"no noise given, and {model.spec} does not say which; give --sigma, such as 0.5, or --noise"
        )
    return chosen


def sized_noise(noise: str, side: int | None) -> Noise:
    """The noise of a text for images of this height and width; None if they are not resized."""
    return parse_noise(noise, None if side is None else (side, side))


def own_device(device: str | None) -> str | None:
    """The requested device; of several processes on one machine each takes its own GPU if none was named."""
    rank, gpus = this_rank(), torch.cuda.device_count()
    return f"cuda:{rank.local % gpus}" if rank.count > 1 and gpus and device in (None, "cuda") else device


def score_threshold(rule: RuleName, given: float | None) -> float | None:
    """The probability from which the base classifier returns a label; None for the top-k rule, unless one is given."""
    return _DEFAULT_SCORE_THRESHOLD if rule == "threshold" and given is None else given


@dataclass(frozen=True)
class _RecordedModel:
    """A `ModelConfig` as source.json records it."""

    spec: str
    labels: str | None = None
    weights: str | None = None
    output: Literal["logits", "probabilities"] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    denoiser: str | None = None


def recorded_model(folder: Path, certified: Results) -> ModelConfig:
    """The model that the votes record. No file may make us import code, fetch weights or read a pipe without end."""
    recorded = certified.source.get("model")
    spec = recorded.get("spec") if isinstance(recorded, dict) else None
    if not isinstance(spec, str):
        raise InvalidInputError(f"{folder} does not name its model; name it with --model")
    try:
        kind = parse_spec(spec).kind
    except ModelError:
        return _moved_model(folder, spec)
    if kind == "code":
        raise InvalidInputError(
            f"{folder} was voted on with {spec}, which is code, and no code runs because a file names it; if you "
            f"trust it, name it yourself: --model {spec}"
        )
    try:
        model = convert(recorded, _RecordedModel)
    except ValueError as error:
        raise InvalidInputError(f"{folder} does not say how its model was loaded ({error}); name --model") from error
    _check_files(folder, model)
    files: dict[str, Any] = {
        name: None if (file := getattr(model, name)) is None else Path(file)
        for name in ("labels", "weights", "denoiser")
    }
    same = {name: getattr(model, name) for name in ("output", "mean", "std")}
    return ModelConfig(model.spec, **files, **same)


def _moved_model(folder: Path, spec: str) -> ModelConfig:
    """The model of the run folder that holds the certificates, if the recorded one has moved."""
    moved = folder.absolute().parent / "model"
    if not moved.is_dir():
        raise InvalidInputError(
            f"{folder} was voted on with the model folder {spec}, which is gone; --model names where it is now"
        )
    return ModelConfig(str(moved))


def _check_files(folder: Path, model: _RecordedModel) -> None:
    if model.weights == "pretrained":
        raise InvalidInputError(
            f"{folder} was voted on with pretrained weights, and nothing is fetched because a file says so; if you "
            f"trust it, name them yourself: --model {model.spec} --weights pretrained"
        )
    parsed = parse_spec(model.spec)
    onnx = parsed.target if parsed.kind == "onnx" else None
    for named in (model.weights, model.labels, model.denoiser, onnx):
        if named is not None and Path(named).exists() and not Path(named).is_file():
            raise InvalidInputError(f"{folder} names {named}, which is not a regular file; name the model with --model")
