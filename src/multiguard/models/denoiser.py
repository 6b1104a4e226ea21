"""Denoised smoothing: a denoiser in front of a classifier, the two together being f."""

from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from multiguard.errors import ModelError
from multiguard.models.classifier import Classifier
from multiguard.models.weights import read_weights

_LAYERS = 12
_CHANNELS = 96


class FFDNet(nn.Module):
    """FFDNet for colour images: one network for every noise level, which is an input of its own.

    An image is folded into 12 channels of half its height and width (2x2 pixel-unshuffle), a constant map of
    the noise level is laid beside them, and 12 convolutions of 96 channels give the clean image.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = [13, *[_CHANNELS] * (_LAYERS - 1), 12]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
        self.model = nn.Sequential(*layers[:-1])

    def forward(self, images: Tensor, sigma: float) -> Tensor:
        """The images (B, 3, height, width) cleaned of noise of this deviation; values may leave [0, 1]."""
        height, width = images.shape[-2:]
        folded = functional.pixel_unshuffle(_even(images), 2)
        # The map of the noise level is one more channel, padded: torch 2.11 cannot compile it concatenated on CUDA.
        known = functional.pad(folded, (0, 0, 0, 0, 0, 1), value=sigma)
        clean = functional.pixel_shuffle(self.model(known), 2)
        return clean[..., :height, :width]


class Denoised(nn.Module):
    """First the denoiser at one fixed noise level, then the classifier on the result clamped to [0, 1].

    Args:
        denoiser: Called with (images, sigma).
        classifier: A classifier of clean or of denoised images.
        sigma: The noise level that the denoiser is told, the smoothing's own.
    """

    def __init__(self, denoiser: FFDNet, classifier: Classifier, sigma: float) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.classifier = classifier
        self.sigma = sigma

    def forward(self, images: Tensor) -> Tensor:
        """One score a label for each noisy image."""
        scores: Tensor = self.classifier(denoised(self.denoiser, images, self.sigma))
        return scores


def denoised(denoiser: FFDNet, images: Tensor, sigma: float) -> Tensor:
    """What the classifier behind a denoiser sees of noisy images, in training as in smoothing: values of [0, 1]."""
    clean: Tensor = denoiser(images, sigma)
    return clean.clamp(0, 1)


def _even(images: Tensor) -> Tensor:
    """The images with their last row and column once more where their number is odd."""
    height, width = images.shape[-2:]
    if height % 2 == width % 2 == 0:
        return images
    return functional.pad(images, (0, width % 2, 0, height % 2), mode="replicate")


def load_ffdnet(path: Path) -> FFDNet:
    """FFDNet with the weights of this file, every tensor matched by name and shape; else `ModelError`."""
    network = FFDNet()
    try:
        network.load_state_dict(read_weights(path))
    except RuntimeError as error:
        raise ModelError(f"{path}: not the weights of a colour FFDNet ({_first_line(error)})") from error
    return network.eval().requires_grad_(False)


def denoise_first(classifier: Classifier, denoiser: FFDNet, sigma: float) -> Classifier:
    """The same labels scored by the same classifier, on images cleaned of noise of this deviation first."""
    return Classifier(
        Denoised(denoiser, classifier, sigma),
        classifier.label_names,
        output=classifier.output,
        image_size=classifier.image_size,
        name=f"ffdnet(sigma={sigma})+{classifier.name}",
        weights_hash=None,
        trained_sigma=classifier.trained_sigma,
        code_hash=classifier.code_hash,
    ).train(classifier.training)


def _first_line(error: RuntimeError) -> str:
    return " ".join(str(error).split())[:200]
