"""Denoised smoothing: a denoiser before a classifier; together they are the base classifier f."""

import hashlib
from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.files import file_checksum
from multiguard.models.classifier import Classifier
from multiguard.models.spec import summary
from multiguard.models.torch_model import TorchClassifier
from multiguard.models.weight_files import read_hashed_weights


class FFDNet(nn.Module):
    """FFDNet for colour images: one network for every noise level, which is part of its input.

    An image is folded into 12 channels of half its height and width (2x2 pixel-unshuffle), a constant channel of
    the noise level is added, and 12 convolutions of 96 channels return the clean image.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise([13, *[96] * 11, 12]):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
        self.model = nn.Sequential(*layers[:-1])

    def forward(self, images: Tensor, sigma: float) -> Tensor:
        """The images (B, 3, height, width) cleaned of noise of standard deviation sigma; values may leave [0, 1]."""
        height, width = images.shape[-2:]
        if height % 2 or width % 2:  # repeat the last row or column
            images = functional.pad(images, (0, width % 2, 0, height % 2), mode="replicate")
        folded = functional.pixel_unshuffle(images, 2)
        # The channel of the noise level is added by padding: torch 2.11 cannot compile a concatenation on CUDA.
        inputs = functional.pad(folded, (0, 0, 0, 0, 0, 1), value=sigma)
        clean = functional.pixel_shuffle(self.model(inputs), 2)
        return clean[..., :height, :width]


class DenoisedNetwork(nn.Module):
    """The denoiser at one noise level, that of the smoothing, then the classifier on its result clamped to [0, 1]."""

    def __init__(self, denoiser: FFDNet, classifier: TorchClassifier, sigma: float) -> None:
        super().__init__()
        self.denoiser, self.classifier, self.sigma = denoiser, classifier, sigma

    def forward(self, images: Tensor) -> Tensor:
        """One score per label for each noisy image."""
        scores: Tensor = self.classifier(denoise(self.denoiser, images, self.sigma))
        return scores


def denoise(denoiser: FFDNet, images: Tensor, sigma: float) -> Tensor:
    """The noisy images as the classifier behind a denoiser receives them, in training and in smoothing: in [0, 1]."""
    clean: Tensor = denoiser(images, sigma)
    return clean.clamp(0, 1)


def denoiser_sigma(noise: Noise | None) -> float:
    """The standard deviation that a denoiser removes, 0 for no noise; it removes Gaussian noise only."""
    if noise is None:
        return 0.0
    if noise.sigma is None:
        raise InvalidInputError(f"the noise is {noise}, and a denoiser removes Gaussian noise only; leave it out")
    return noise.sigma


def load_ffdnet(path: Path) -> FFDNet:
    """FFDNet with the weights of this file, every tensor matched by name and shape; otherwise `ModelError`."""
    return _hashed_ffdnet(path)[0]


def _hashed_ffdnet(path: Path) -> tuple[FFDNet, str]:
    """FFDNet with the weights of this file, and the sha256 of the bytes that they were made from."""
    network, (weights, digest) = FFDNet(), read_hashed_weights(path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"{path}: not the weights of a colour FFDNet ({summary(error)})") from error
    return network.eval().requires_grad_(False), digest


def denoise_first(classifier: Classifier, denoiser: FFDNet | str | Path, sigma: float) -> TorchClassifier:
    """The same classifier with a denoiser for noise of standard deviation sigma before it: one base classifier.

    A network that never saw noise is certified so without training; the noise of the smoothing must be this sigma.

    Args:
        classifier: A classifier of images with three channels; one that has a denoiser already is refused. A function
            gets tensors.
        denoiser: An FFDNet, or the file of its weights.
        sigma: The noise that it removes.

    >>> channel_means = Classifier(lambda images: images.mean((2, 3)), ["r", "g", "b"], name="means")
    >>> denoise_first(channel_means, FFDNet(), sigma=0.1)
    Classifier(ffdnet(sigma=0.1)+means, 3 labels, output=None)
    """
    if isinstance(classifier.network, DenoisedNetwork):
        raise ModelError(f"{classifier.name} has a denoiser already; leave out the second one")
    inner = classifier.module()
    network, digest = (denoiser, None) if isinstance(denoiser, FFDNet) else _hashed_ffdnet(Path(denoiser))
    return TorchClassifier(
        DenoisedNetwork(network, inner, sigma),
        None if classifier.num_labels is None else classifier.label_names,
        output=classifier.output,
        image_size=classifier.image_size,
        name=f"ffdnet(sigma={sigma})+{classifier.name}",
        weights_hash=_joined(classifier.weights_hash, digest),
        trained_noise=classifier.trained_noise,
        code_hash=classifier.code_hash,
    ).train(inner.training)


def denoised_checksum(weights: str | None, denoiser: Path) -> str | None:
    """The hash of weights of this checksum together with the file of a denoiser; None where there are no weights."""
    return _joined(weights, file_checksum(denoiser))


def _joined(weights: str | None, denoiser: str | None) -> str | None:
    return None if None in (weights, denoiser) else hashlib.sha256(f"{weights} {denoiser}".encode()).hexdigest()
