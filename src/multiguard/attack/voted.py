"""From certificates back to the images and the classifier that were voted on."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multiguard.data.config import DataConfig
from multiguard.data.sample import IndexedDataset
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Results
from multiguard.io.config import from_tree
from multiguard.models import Classifier
from multiguard.models.config import ModelConfig, recorded_model
from multiguard.models.denoiser import denoised_checksum
from multiguard.models.loading import load_model, runs_code, weights_checksum
from multiguard.smooth import Smoother
from multiguard.smooth.settings import execution

# These decide the last digits of the scores; the noise does not depend on them.
_EXECUTION = (
    *("device", "precision", "channels_last", "compiled", "tf32_matmul", "tf32_convolution"),
    *("torch", "timm", "transformers", "onnxruntime"),
)


def voted_data(folder: Path, certified: Results, root: Path | None) -> DataConfig:
    """The images that were voted on; `folder` is that of the certificates."""
    if "data" not in certified.source:
        raise InvalidInputError(f"{folder} does not name its images; vote with multiguard vote")
    data = from_tree(DataConfig, certified.source["data"], "data")
    return data if root is None else data.replace(root=root)


def voted_classifier(folder: Path, certified: Results, model: ModelConfig | None, data: DataConfig) -> Classifier:
    """The classifier that was voted with; another one is refused, since the certificates say nothing about it."""
    part = model.resolved() if model else recorded_model(folder, certified.source.get("model"))
    run, names = certified.provenance, certified.certificates.label_names
    other = InvalidInputError(
        f"{part.spec} is not the classifier that {folder} is about; --model names the one that voted"
    )
    if not runs_code(part.spec):
        digest = weights_checksum(part.spec, part.weights)
        digest = digest if part.denoiser is None else denoised_checksum(digest, part.denoiser)
        if digest != run["weights_hash"]:
            raise other  # before any of its files is taken for a model
    classifier = load_model(part, size=data.size, noise=str(certified.certificates.noise))
    if classifier.num_labels is None:
        classifier.name_labels(names)
    found = (classifier.state_hash(), classifier.code_hash, classifier.weights_hash, classifier.output)
    voted = tuple(run[name] for name in ("classifier_hash", "code_hash", "weights_hash", "output"))
    if found != voted or classifier.label_names != names:
        raise other
    return classifier


def voted_smoother(certified: Results, classifier: Classifier, device: str | None) -> Smoother:
    """The smoothed classifier as it was voted with, with only the ranks that the certificates use."""
    run = certified.provenance
    return Smoother(
        classifier,
        noise=certified.certificates.noise,
        k_max=certified.certificates.config.rule.k_prime,
        score_threshold=run["score_threshold"],
        device=device,
        clamp=run["clamp"],
        precision=run["precision"],
    )


def voted_images(images: IndexedDataset, names: Sequence[str]) -> Iterator[NDArray[np.generic]]:
    """The images of these ids, decoded one by one; one that is gone raises `DataError`."""
    positions = {name: index for index, name in enumerate(images.ids)}
    for name in names:
        if name not in positions:
            raise DataError(f"image {name} was voted on and is no longer in {images.name}; --root FOLDER")
        yield images[positions[name]].image


def execution_notes(certified: Results, smoother: Smoother) -> tuple[str, ...]:
    """A note if the classifier does not run as it did when it voted."""
    now, then = ({**run, **run["versions"]} for run in (execution(smoother), certified.provenance))
    known = [name for name in _EXECUTION if name in now and name in then]
    differences = [f"{name} {then[name]}, here {now[name]}" for name in known if now[name] != then[name]]
    if not differences:
        return ()
    meaning = "certificates are about the classifier as it ran there, to the last digit"
    return (f"the votes were drawn differently ({'; '.join(differences)}): {meaning}",)
