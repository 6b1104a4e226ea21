"""The base classifier f: images in [0, 1] to one score per label, with its normalisation inside."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from multiguard.errors import ModelError

Output = Literal["logits", "probabilities"]
UNNAMED = "the callable"  # the name of a function whose caller gave it none
# A checksum reads a value as a whole number of its own size, so many values at once, each with a weight of its own.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WORDS_AT_ONCE, _MULTIPLIERS = 1 << 22, (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9)


class Classifier(nn.Module):
    """A base classifier whose input is the image itself, so that a radius is always measured in pixels in [0, 1].

    Inputs that are no images (rows of a table, sound, embeddings) are taken in their own unit.

    Args:
        network: Any callable or module (B, *input_shape) -> (B, c). An output with `logits`, as Hugging Face models
            return, and a NumPy array become a tensor.
        label_names: The c label names, in the order of the scores; None if only `find_labels` will count them.
        output: Whether the scores are logits or probabilities, never guessed from values; None if undeclared: the
            ranking of labels does not need it, a score threshold does.
        mean: Per-channel mean subtracted inside the classifier, after the noise; None for none.
        std: Per-channel standard deviation divided by inside the classifier; None for none.
        image_size: (height, width) the network expects; None for any size.
        name: The model's name in records.
        weights_hash: sha256 of the weights file; None if there is none (a plain callable).
        trained_noise: The noise in training, as text, "none" for none; None if it is unknown. Behind a denoiser it is
            that of the classifier alone.
        code_hash: sha256 of the user's source files that define the network; None if there are none, or if the network
            was given as an object.

    >>> channel_means = Classifier(lambda images: images.mean((2, 3)), ["r", "g", "b"], output="logits", name="means")
    >>> channel_means(torch.ones(1, 3, 4, 4))
    tensor([[1., 1., 1.]])
    """

    def __init__(
        self,
        network: Callable[[Tensor], Any],
        label_names: Sequence[str] | None,
        *,
        output: Output | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        image_size: tuple[int, int] | None = None,
        name: str,
        weights_hash: str | None = None,
        trained_noise: str | None = None,
        code_hash: str | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self._label_names: tuple[str, ...] | None = None
        if label_names is not None:
            self.name_labels(label_names)
        self.output, self.image_size = output, image_size
        self.name, self.trained_noise = name, trained_noise
        self.weights_hash, self.code_hash = weights_hash, code_hash
        self.register_buffer("mean", _channels(mean))
        self.register_buffer("std", _channels(std))

    mean: Tensor | None
    std: Tensor | None

    @property
    def num_labels(self) -> int | None:
        """The number of labels c; None where only the first input will tell (`find_labels`)."""
        return None if self._label_names is None else len(self._label_names)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The c label names, in the order of the scores; `ModelError` where their number is not known yet."""
        if self._label_names is None:
            raise ModelError(
                f"{self.name}: how many labels it has is unknown before its first input; give labels=[...]"
            )
        return self._label_names

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns that a scikit-learn estimator was fitted on, in its order; None if it has none."""
        return getattr(self.network, "feature_names", None)

    @torch.no_grad()
    def find_labels(self, inputs: Tensor) -> tuple[str, ...]:
        """The label names; where their number is unknown, one forward pass counts them, and indices name them.

        >>> classifier = Classifier(lambda rows: rows[:, :2], None, name="first two")
        >>> classifier.num_labels, classifier.find_labels(torch.zeros(1, 5)), classifier.num_labels
        (None, ('0', '1'), 2)
        """
        if self._label_names is not None:
            return self._label_names
        try:
            scores = self.eval()(inputs)
        except Exception as error:  # a model may raise anything
            shape, what = tuple(inputs.shape[1:]), " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(f"{self.name} failed on an input of shape {shape}: {what}") from error
        if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(inputs):
            what = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
            raise ModelError(f"{self.name} returned {what} for {len(inputs)} inputs; one row of scores per input")
        self._label_names = index_names(scores.shape[1])
        return self._label_names

    def name_labels(self, names: Sequence[str]) -> None:
        """Name the labels of a classifier whose number of labels is unknown; a name given twice raises `ModelError`."""
        if len(set(names)) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise ModelError(f"the label {twice!r} is named twice; give each score a name of its own")
        self._label_names = tuple(names)

    def __repr__(self) -> str:
        labels = "labels unknown" if self._label_names is None else f"{self.num_labels} labels"
        return f"Classifier({self.name}, {labels}, output={self.output!r})"

    def normalise(self, images: Tensor) -> Tensor:
        """The network's input: the images minus the mean, divided by the standard deviation."""
        if self.mean is not None:
            images = images - self.mean
        return images if self.std is None else images / self.std

    def forward(self, images: Tensor) -> Tensor:
        """One score per label for each image in [0, 1]."""
        scores = self.network(self.normalise(images))
        scores = scores if isinstance(scores, Tensor) else getattr(scores, "logits", scores)
        return torch.from_numpy(scores).to(images.device) if isinstance(scores, np.ndarray) else scores


def index_names(count: int) -> tuple[str, ...]:
    """The names of labels that have none: their indices.

    >>> index_names(3)
    ('0', '1', '2')
    """
    return tuple(map(str, range(count)))


def label_tuple(labels: Any) -> tuple[str, ...]:
    """The label names of any sequence of names or whole numbers, such as an array; anything else raises `ModelError`.

    >>> label_tuple(np.array(["cat", "dog"]))
    ('cat', 'dog')
    """
    if isinstance(labels, str | bytes | Mapping) or not (hasattr(labels, "__len__") and hasattr(labels, "__getitem__")):
        raise ModelError(
            f"labels is a {type(labels).__name__}; give a list of label names in the order of the scores, such as "
            "labels=['cat', 'dog']."
        )
    names = tuple(labels)
    if not names or not all(isinstance(name, str | int | np.integer) for name in names):
        raise ModelError(f"labels is {labels!r}; give at least one label name, in the order of the scores.")
    return tuple(map(str, names))


def _channels(values: Sequence[float] | None) -> Tensor | None:
    return None if values is None else torch.tensor(tuple(values)).view(-1, 1, 1)


@dataclass(frozen=True)
class ModelOptions:
    """The keyword options of `load`; None where one was not given."""

    labels: Sequence[str] | None = None
    weights: Path | None = None
    output: Output | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    image_size: tuple[int, int] | None = None
    name: str | None = None

    def fill(self, **defaults: Any) -> "ModelOptions":
        """These options, with the model's own values where none were given."""
        return replace(self, **{name: value for name, value in defaults.items() if not getattr(self, name)})

    def make_classifier(self, network: Callable[[Tensor], Any], spec: str, weights_hash: str | None) -> Classifier:
        """The network as a `Classifier`; an unknown kind of scores raises `ModelError`."""
        if self.output is not None and self.output not in get_args(Output):
            raise ModelError(
                f"{spec}: its scores are --output logits or probabilities (output=...), not {self.output!r}."
            )
        return Classifier(
            network,
            self.labels,
            output=self.output,
            mean=self.mean,
            std=self.std,
            image_size=self.image_size,
            name=self.name or spec,
            weights_hash=weights_hash,
        )

    def require_labels(self, spec: str) -> tuple[str, ...]:
        """The label names; `ModelError` where none were given."""
        if not self.labels:
            raise ModelError(f"{spec}: give the label names in the order of the scores, --labels FILE (labels=[...]).")
        return tuple(self.labels)

    def check_count(self, count: int | None, spec: str) -> None:
        """Raises `ModelError` for label names of another number than the model's scores, where that is known."""
        if self.labels is not None and count not in (None, len(self.labels)):
            raise ModelError(f"{spec} returns {count} scores, and --labels (labels=[...]) names {len(self.labels)}.")

    def refuse_weights(self, spec: str) -> None:
        """Raises `ModelError` for a weights file where the model has its own."""
        if self.weights is not None:
            raise ModelError(f"{spec} has its own weights; leave out weights={str(self.weights)!r}.")

    def refuse_all(self, spec: str) -> None:
        """Raises `ModelError` for any option where the model determines all of them: it would be silently ignored."""
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if given:
            raise ModelError(f"{spec} determines all its options; leave out {', '.join(given)}, or load its network.")


def state_hash(module: nn.Module) -> str:
    """The sha256 of all parameters and buffers of a module, saved ones or not: names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in _state(module):
        digest.update(_described(name, tensor))
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def state_checksum(module: nn.Module) -> str:
    """A checksum that shows whether a module's state has changed: `state_hash` on the host, `state_sums` elsewhere.

    It is compared within one process and never recorded. No weights are copied from a device to the host.

    >>> layer = nn.Linear(2, 2)
    >>> before = state_checksum(layer)
    >>> with torch.no_grad():
    ...     _ = layer.bias.add_(1e-3)
    >>> state_checksum(layer) == before
    False
    """
    on_host = all(tensor.device.type == "cpu" for _, tensor in _state(module))
    return state_hash(module) if on_host else state_sums(module)


def state_sums(module: nn.Module) -> str:
    """The sha256 of weighted sums of all parameters and buffers, computed on their own device.

    It always sees a change of one value, and misses any other change only by chance, about once in 2^60.
    """
    digest, words = hashlib.sha256(), list[Tensor]()
    for name, tensor in _state(module):
        digest.update(_described(name, tensor))
        flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous().flatten()
        whole = flat.view(_WORDS[flat.element_size()])
        words += [whole] if len(whole) <= _WORDS_AT_ONCE else torch.split(whole, _WORDS_AT_ONCE)
    words.sort(key=lambda each: (str(each.device), str(each.dtype)))
    # Tensor by tensor it takes 77 ms on an H200 for 540 small tensors, in groups 3 ms.
    groups = groupby(words, key=lambda each: (each.device, each.dtype))
    sums = [_weighted_sum(torch.cat(part)) for _, group in groups for part in _parts(group)]
    for part in sums:  # all are on their way before the first is waited for
        digest.update(part.cpu().numpy().data)
    return digest.hexdigest()


def _state(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The values of all parameters and buffers by name, each as often as it has a name; no view that conjugates."""
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    values = ((name, tensor.detach().resolve_conj().resolve_neg()) for name, tensor in tensors)
    return sorted(values, key=lambda named: named[0])


def _described(name: str, tensor: Tensor) -> bytes:
    return f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode()


def _parts(words: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in groups of bounded size."""
    part, size = list[Tensor](), 0
    for each in words:
        part.append(each)
        size += len(each)
        if size >= _WORDS_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _weighted_sum(words: Tensor) -> Tensor:
    """The sum of whole numbers times odd weights that look random, modulo 2^64."""
    weights = torch.arange(1, len(words) + 1, device=words.device) * _MULTIPLIERS[0]
    weights = ((weights ^ (weights >> 31)) * _MULTIPLIERS[1]) ^ (weights >> 17)
    return (words.to(torch.int64) * (weights | 1)).sum()
