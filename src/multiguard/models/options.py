"""What a caller may say about a model when it is loaded."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
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
            raise ModelError(
                f"{spec}: give the label names with --labels FILE (labels=[...]), in the order of the scores."
            )
        return tuple(self.labels)

    def need_output(self, spec: str) -> Output:
        """The declared kind of the scores, or a `ModelError`: it is never guessed from values."""
        if self.output is None or self.output not in get_args(Output):
            raise ModelError(
                f"{spec}: declare its scores with --output logits or probabilities (output=...), not {self.output!r}."
            )
        return self.output

    def refuse_weights(self, spec: str) -> None:
        """Refuse a weights file where the model brings its own."""
        if self.weights is not None:
            raise ModelError(f"{spec} brings its own weights; leave out weights={str(self.weights)!r}.")

    def refuse_all(self, spec: str) -> None:
        """Refuse any option where the model says everything itself: it would be silently dropped."""
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if given:
            raise ModelError(
                f"{spec} says everything about itself; leave out {', '.join(given)}, or load its network instead."
            )


def state_hash(module: nn.Module) -> str:
    """The sha256 of all parameters and buffers of a module, saved ones or not: names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in sorted(tensors, key=lambda named: named[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
