"""What a caller may say about a model when it is loaded."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from multiguard.errors import ModelError
from multiguard.models.classifier import Output


@dataclass(frozen=True)
class ModelOptions:
    """What a loader was told; None where the caller said nothing.

    Attributes:
        labels: The label names, in the order of the scores.
        weights: A weights file.
        output: Whether the scores are logits or probabilities.
        mean: Per-channel mean of the normalisation.
        std: Per-channel deviation of the normalisation.
        image_size: (height, width) that the model takes.
        name: What to call the model in records.
    """

    labels: Sequence[str] | None = None
    weights: Path | None = None
    output: Output | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    image_size: tuple[int, int] | None = None
    name: str | None = None

    def need_labels(self, spec: str) -> tuple[str, ...]:
        """The label names, or a `ModelError` where none were given."""
        if not self.labels:
            raise ModelError(f"{spec}: give the label names as labels=[...], in the order of the scores.")
        return tuple(self.labels)

    def need_output(self, spec: str) -> Output:
        """The declared kind of the scores, or a `ModelError`: it is never guessed from values."""
        if self.output is None or self.output not in get_args(Output):
            raise ModelError(
                f"{spec}: declare its scores, output='logits' or output='probabilities', not {self.output!r}."
            )
        return self.output

    def refuse_weights(self, spec: str) -> None:
        """Refuse a weights file where the model brings its own."""
        if self.weights is not None:
            raise ModelError(f"{spec} brings its own weights; leave out weights={str(self.weights)!r}.")


def state_hash(module: nn.Module) -> str:
    """The sha256 of a module's parameters and buffers: names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
