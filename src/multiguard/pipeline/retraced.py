"""From certificates back to what they are about: the images and the model, found to be the same."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from multiguard.data.listed import read_lines
from multiguard.data.source import Source
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Setting
from multiguard.io.records import convert
from multiguard.models import Classifier
from multiguard.models.loading import LOADERS
from multiguard.models.options import state_hash
from multiguard.pipeline.recipe import ModelPart
from multiguard.pipeline.voting import load_model
from multiguard.results import CertificatesFolder
from multiguard.smooth import Smoother


def voted_images(folder: Path, proved: CertificatesFolder, root: Path | None) -> Source:
    """The images that were voted on.

    Args:
        folder: The certificates folder.
        proved: What it holds.
        root: Where the images lie now; None for where they lay.
    """
    if "data" not in proved.source:
        raise InvalidInputError(f"{folder} does not say which images it is about; vote with multiguard vote")
    source = Source.from_dict(proved.source["data"])
    return source if root is None else replace(source, root=root)


def voted_model(
    folder: Path, proved: CertificatesFolder, source: Source, names: tuple[str, ...], model: ModelPart | None
) -> Classifier:
    """The classifier that was voted with; another one is refused, since the certificates say nothing about it.

    Args:
        folder: The certificates folder.
        proved: What it holds.
        source: The images.
        names: Their label names.
        model: The model, where it is no longer what the votes call it; None to ask them.
    """
    part = model or _told(folder, proved)
    brings_labels = Path(part.spec).is_dir() or part.spec.startswith("hf:")
    order = names if part.labels is None else tuple(read_lines(part.labels))
    classifier = load_model(part, source.size, None if brings_labels else order)
    if not _is_same(classifier, proved):
        raise InvalidInputError(
            f"{part.spec} is not the classifier that {folder} is about; --model names the one that was voted with"
        )
    return classifier


def voted_smoother(proved: CertificatesFolder, classifier: Classifier, device: str | None) -> Smoother:
    """The smoothed classifier as it was voted with, but for the ranks that the certificates do not ask for.

    Args:
        proved: The certificates.
        classifier: The base classifier.
        device: Where it runs; None for a GPU, if any.
    """
    run, setting = proved.provenance, proved.certificates.setting
    return Smoother(
        classifier,
        sigma=run["sigma"],
        rule=run["rule"],
        k_max=setting.k_prime if isinstance(setting, Setting) else None,
        score_threshold=run["score_threshold"],
        device=device,
        clamp=run["clamp"],
        precision=run["precision"],
    )


def _told(folder: Path, proved: CertificatesFolder) -> ModelPart:
    """The model as `multiguard vote` was told it."""
    told = proved.source.get("model")
    if not isinstance(told, dict) or not isinstance(told.get("spec"), str):
        raise InvalidInputError(f"{folder} does not say which model was voted with; name it with --model")
    if _is_code(told["spec"]):
        raise InvalidInputError(
            f"{folder} was voted on with {told['spec']}, which is code, and no code runs because a file names it; if "
            f"you trust it, name it yourself: --model {told['spec']}"
        )
    if _is_gone(told["spec"]):
        return _beside(folder, told["spec"])
    try:
        said = convert(told, _Told)
    except ValueError as error:
        raise InvalidInputError(f"{folder} does not say how its model was loaded ({error}); name --model") from error
    _require_files(folder, said)
    # The word stands for the dataset's own order of labels.
    labels = None if said.labels in (None, "dataset") else Path(said.labels)
    weights = None if said.weights is None else Path(said.weights)
    return ModelPart(said.spec, labels, weights, said.output, said.mean, said.std)


def _is_code(spec: str) -> bool:
    """Whether it reads module:function; a path, there or not, does not."""
    module, colon, _ = spec.partition(":")
    return bool(colon) and module not in LOADERS and not {"/", "\\"} & set(spec) and not Path(spec).is_dir()


def _is_gone(spec: str) -> bool:
    return spec.partition(":")[0] not in LOADERS and not Path(spec).is_dir()


def _beside(folder: Path, spec: str) -> ModelPart:
    """The model of the run folder that the certificates lie in, where the one that the votes name has moved."""
    moved = folder.absolute().parent / "model"
    if not moved.is_dir():
        raise InvalidInputError(
            f"{folder} was voted on with the model folder {spec}, which is not there; --model names where it is now"
        )
    return ModelPart(str(moved))


def _require_files(folder: Path, said: "_Told") -> None:
    """Refuses what a file must not make us do: fetch weights, or read from a device or a pipe without an end."""
    if said.weights == "pretrained":
        raise InvalidInputError(
            f"{folder} was voted on with pretrained weights, and nothing is fetched because a file says so; if you "
            f"trust it, name them yourself: --model {said.spec} --weights pretrained"
        )
    onnx = said.spec.removeprefix("onnx:") if said.spec.startswith("onnx:") else None
    labels = None if said.labels == "dataset" else said.labels
    for named in (said.weights, labels, onnx):
        if named is not None and Path(named).exists() and not Path(named).is_file():
            raise InvalidInputError(f"{folder} names {named}, which is no regular file; name what it was with --model")


@dataclass(frozen=True)
class _Told:
    """A `ModelPart` as a votes folder writes it down."""

    spec: str
    labels: str | None = None
    weights: str | None = None
    output: Literal["logits", "probabilities"] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def _is_same(classifier: Classifier, proved: CertificatesFolder) -> bool:
    run = proved.provenance
    return (
        state_hash(classifier) == run["classifier_hash"]
        and classifier.code_hash == run["code_hash"]
        and classifier.weights_hash == run["weights_hash"]
        and classifier.output == run["output"]
        and classifier.label_names == proved.certificates.label_names
    )
