"""Base classifiers that run in torch: modules, and functions of tensors."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from multiguard.models.classifier import Classifier, bare_scores, score_array

# A checksum reads a value as a whole number of its own size, many values at once, each with a weight of its own.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WORDS_AT_ONCE, _MULTIPLIERS = 1 << 22, (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9)


class TorchClassifier(nn.Module, Classifier):
    """A base classifier as a torch module: what `Classifier` is, on any device and with gradients.

    An output with `logits`, as Hugging Face models return, and a NumPy array become a tensor. A module of another
    precision gets its inputs in that one.

    >>> means = TorchClassifier(lambda images: images.mean((2, 3)), ["r", "g", "b"], output="logits", name="means")
    >>> means(torch.ones(1, 3, 4, 4))
    tensor([[1., 1., 1.]])
    """

    mean: Any  # float32 buffers
    std: Any
    placed = torch.device("cpu")

    def __init__(self, network: Callable[[Tensor], Any], *args: Any, **options: Any) -> None:
        nn.Module.__init__(self)
        Classifier.__init__(self, network, *args, **options)
        for name in ("mean", "std"):
            values = self.__dict__.pop(name)
            self.register_buffer(name, None if values is None else torch.from_numpy(values))
        self.takes = "tensors"
        floating = (each for each in self.parameters() if each.is_floating_point())
        self._precision = next((each.dtype for each in floating if each.dtype != torch.float32), None)

    @classmethod
    def of(cls, classifier: Classifier) -> "TorchClassifier":
        """The same classifier as a module; one that takes arrays is given copies on the host, without gradients."""
        mean, std = (None if values is None else values.flatten() for values in (classifier.mean, classifier.std))
        return cls(
            ArrayModule(classifier.network) if classifier.takes == "arrays" else classifier.network,
            None if classifier.num_labels is None else classifier.label_names,
            output=classifier.output,
            mean=mean,
            std=std,
            image_size=classifier.image_size,
            name=classifier.name,
            weights_hash=classifier.weights_hash,
            trained_noise=classifier.trained_noise,
            code_hash=classifier.code_hash,
        )

    def train(self, mode: bool = True) -> Self:
        """The mode of all modules; a program of torch.export keeps the one that it was exported in."""
        try:
            return super().train(mode)
        except NotImplementedError:
            for module in self.modules():
                module.training = mode
            return self

    def parts_in_training(self) -> list[str]:
        """The names of all modules in train mode."""
        return [name for name, module in self.named_modules() if module.training]

    def module(self) -> "TorchClassifier":
        """The classifier itself."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        """One score per label for each image in [0, 1]."""
        inputs = self.normalise(images)
        scores = bare_scores(self.network(inputs if self._precision is None else inputs.to(self._precision)))
        return torch.from_numpy(scores).to(images.device) if isinstance(scores, np.ndarray) else scores

    @torch.no_grad()
    def scores(self, inputs: NDArray[np.float32]) -> NDArray[Any]:
        """One score per label for each input, in plain float32."""
        return as_array(self(torch.from_numpy(inputs).to(self._device)))

    def runs(self, inputs: NDArray[np.float32], device: Any) -> bool:
        """Whether a function of tensors returns scores for these inputs."""
        self.placed = torch.device(device or "cpu")
        try:
            with torch.no_grad():
                return isinstance(self(torch.from_numpy(inputs.copy()).to(self.placed)), Tensor)
        except Exception:  # any error of the user's function
            return False

    @property
    def has_arrays(self) -> bool:
        """Whether a part of it runs outside torch."""
        return any(isinstance(module, ArrayModule) for module in self.modules())

    @property
    def _device(self) -> torch.device:
        """Where its weights are, or where a function of tensors was called first."""
        tensors = (*self.parameters(), *self.buffers())
        return tensors[0].device if tensors else self.placed

    def state_hash(self) -> str:
        """The sha256 of all parameters and buffers."""
        return state_hash(self)

    def state_checksum(self) -> str:
        """A checksum of all parameters and buffers."""
        return state_checksum(self)

    def __repr__(self) -> str:
        return Classifier.__repr__(self)


class ArrayModule(nn.Module):
    """A network of arrays as a part of a torch module; it has gradients if it takes tensors as well."""

    def __init__(self, network: Callable[[Any], Any]) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """The scores of each input, on the device of the input."""
        if inputs.requires_grad:
            with suppress(Exception):  # of a function that takes arrays only
                found = self.network(inputs)
                if isinstance(found, Tensor):
                    return found
        found = self.network(inputs.detach().to(torch.float32).cpu().numpy())
        return torch.from_numpy(np.ascontiguousarray(score_array(found))).to(inputs.device)


def as_array(scores: Any) -> NDArray[Any]:
    """The scores as an array on the host; a half-precision type becomes float32."""
    if not isinstance(scores, Tensor):
        return score_array(scores)
    half = scores.is_floating_point() and scores.element_size() < 4
    return (scores.float() if half else scores).detach().cpu().numpy()


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
        words += torch.split(flat.view(_WORDS[flat.element_size()]), _WORDS_AT_ONCE)
    sums, device = list[Tensor](), words[0].device if words else None
    while words:  # many small tensors have one sum, since each sum that is waited for takes longer than it is computed
        part, size = list[Tensor](), 0
        while words and size < _WORDS_AT_ONCE:
            part.append(words.pop().to(device, torch.int64))
            size += len(part[-1])
        sums.append(_weighted_sum(torch.cat(part)))
    for each in sums:
        digest.update(each.cpu().numpy().data)
    return digest.hexdigest()


def _state(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The values of all parameters and buffers by name, each as often as it has a name; no view that conjugates."""
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    values = ((name, tensor.detach().resolve_conj().resolve_neg()) for name, tensor in tensors)
    return sorted(values, key=lambda named: named[0])


def _described(name: str, tensor: Tensor) -> bytes:
    return f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode()


def _weighted_sum(words: Tensor) -> Tensor:
    """The sum of whole numbers times odd weights that look random, modulo 2^64."""
    weights = torch.arange(1, len(words) + 1, device=words.device) * _MULTIPLIERS[0]
    weights = ((weights ^ (weights >> 31)) * _MULTIPLIERS[1]) ^ (weights >> 17)
    return (words * (weights | 1)).sum()
