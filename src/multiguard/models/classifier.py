"""The base classifier f: images in [0, 1] to one score per label, with its normalisation inside."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Output = Literal["logits", "probabilities"]
UNNAMED = "the callable"  # what a function is called whose caller gave it no name


class Classifier(nn.Module):
    """A base classifier whose input is the image itself, so that a radius always means pixels in [0, 1].

    Args:
        network: Any callable or module (B, *input_shape) -> (B, c).
        label_names: The c label names, in the order of the scores.
        output: Whether the scores are logits or probabilities; declared, never guessed from values.
        mean: Per-channel mean subtracted inside the classifier, after the noise; None for none.
        std: Per-channel deviation divided by inside the classifier; None for none.
        image_size: (height, width) the network expects; None if any size will do.
        name: What the model is, for the record.
        weights_hash: sha256 of the weights file; None where there is none (a plain callable).
        trained_sigma: Deviation of the noise that its training images carried, 0.0 where they carried none; None
            where that is not known. Where a denoiser stands in front, it is that of the classifier behind it.
        code_hash: sha256 of the user's source files that make the network; None where it is made of ours alone, or
            was handed over as an object.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        label_names: Sequence[str],
        *,
        output: Output,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        image_size: tuple[int, int] | None = None,
        name: str,
        weights_hash: str | None = None,
        trained_sigma: float | None = None,
        code_hash: str | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.label_names = tuple(label_names)
        self.output = output
        self.image_size = image_size
        self.name = name
        self.weights_hash = weights_hash
        self.trained_sigma = trained_sigma
        self.code_hash = code_hash
        self.register_buffer("mean", _channels(mean))
        self.register_buffer("std", _channels(std))

    mean: Tensor | None
    std: Tensor | None

    def forward(self, images: Tensor) -> Tensor:
        """One score per label for each image in [0, 1]."""
        if self.mean is not None:
            images = images - self.mean
        if self.std is not None:
            images = images / self.std
        return self.network(images)


def _channels(values: Sequence[float] | None) -> Tensor | None:
    return None if values is None else torch.tensor(tuple(values)).view(-1, 1, 1)
