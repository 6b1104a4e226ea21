"""Denoised smoothing: a denoiser before a classifier; together they are the base classifier f."""

import hashlib
from pathlib import Path

from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum
from multiguard.models.card import read_card, weights_file
from multiguard.models.classifier import Classifier
from multiguard.models.config import BUILT_IN_DENOISER
from multiguard.models.networks import UNet
from multiguard.models.spec import BUILT_IN
from multiguard.models.torch_model import TorchClassifier
from multiguard.models.weight_files import load_weights, read_hashed_weights

_PART = "network.denoiser."  # the U-Net's tensors in a model folder


class DenoisedNetwork(nn.Module):
    """A U-Net, then the classifier on the image that it cleaned, clamped to [0, 1]."""

    def __init__(self, denoiser: UNet, classifier: TorchClassifier) -> None:
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier

    def forward(self, images: Tensor) -> Tensor:
        """One score per label for each noisy image."""
        clean = self.denoiser(2 * images - 1) / 2 + 0.5
        scores: Tensor = self.classifier(clean.clamp(0, 1))
        return scores


def denoise_first(classifier: Classifier, denoiser: UNet | str | Path = BUILT_IN_DENOISER) -> TorchClassifier:
    """The same classifier with a denoiser before it: one base classifier, for Gaussian noise of any sigma.

    A network that never saw noise is certified so without training.

    Args:
        classifier: A classifier of images with three channels; one that has a denoiser already is refused. A function
            gets tensors.
        denoiser: "built-in", a model folder whose network begins with a U-Net, or a U-Net.

    >>> channel_means = Classifier(lambda images: images.mean((2, 3)), ["r", "g", "b"], name="means")
    >>> denoise_first(channel_means)
    Classifier(denoiser+means, 3 labels, output=None)
    """
    if isinstance(classifier.network, DenoisedNetwork):
        raise ModelError(f"{classifier.name} has a denoiser already; leave out the second one")
    inner = classifier.module()
    network, digest = (denoiser, None) if isinstance(denoiser, UNet) else load_denoiser(denoiser)
    return TorchClassifier(
        DenoisedNetwork(network, inner),
        None if classifier.num_labels is None else classifier.label_names,
        output=classifier.output,
        image_size=classifier.image_size,
        name=f"denoiser+{classifier.name}",
        weights_hash=_joined(classifier.weights_hash, digest),
        trained_noise=classifier.trained_noise,
        code_hash=classifier.code_hash,
    ).train(inner.training)


def load_denoiser(name: str | Path) -> tuple[UNet, str]:
    """The U-Net of this name, ready to use, and the sha256 of the file that has its weights."""
    file = _denoiser_file(name)
    tensors, digest = read_hashed_weights(file)
    part = {key.removeprefix(_PART): tensor for key, tensor in tensors.items() if key.startswith(_PART)}
    network = UNet(len(part["enter.conv.weight"]))
    load_weights(network, part, str(file))
    return network.eval().requires_grad_(False), digest


def _denoiser_file(name: str | Path) -> Path:
    if str(name) == BUILT_IN_DENOISER:
        return BUILT_IN / "denoiser.safetensors"
    if not (architecture := read_card(Path(name)).architecture).startswith("unet:"):
        raise ModelError(f"{name} holds {architecture}; a denoiser is the U-Net of a network such as unet:64+lite:0")
    return weights_file(Path(name))


def denoised_checksum(weights: str | None, denoiser: str | Path) -> str | None:
    """The hash of weights of this checksum together with those of a denoiser; None where there are no weights."""
    return _joined(weights, file_checksum(_denoiser_file(denoiser)))


def _joined(weights: str | None, denoiser: str | None) -> str | None:
    return None if None in (weights, denoiser) else hashlib.sha256(f"{weights} {denoiser}".encode()).hexdigest()
