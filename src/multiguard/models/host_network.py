"""Networks that run outside torch: NumPy arrays in, NumPy arrays out."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.errors import ModelError


class HostNetwork(ABC):
    """A callable (B, ...) -> (B, c) that computes on the CPU without torch, so without gradients or autocast."""

    @abstractmethod
    def scores(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """The scores of each row."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """The scores of each input, on the device of the input."""
        return host_scores(self.scores, inputs)


def host_scores(function: Any, inputs: Tensor) -> Tensor:
    """The scores of a function of NumPy arrays; other results than an array of numbers raise `ModelError`."""
    found = function(inputs.detach().to(torch.float32).cpu().numpy())
    found = found.toarray() if hasattr(found, "toarray") else found  # a sparse matrix
    if isinstance(found, Tensor):
        return found.to(inputs.device)
    try:
        array = np.asarray(found)
        return torch.from_numpy(np.ascontiguousarray(array)).to(inputs.device)
    except (TypeError, ValueError) as error:  # neither objects nor rows of several lengths
        raise ModelError(
            f"it returned {type(found).__name__}, expected an array of one score per input and label"
        ) from error


class FunctionNetwork:
    """A user's function of a batch, called with what it takes: tensors, or else NumPy arrays.

    The first batch decides. A function that takes both must return the same for both: a NumPy function that runs on
    tensors by chance may compute something else there (`x.std()` divides by n - 1).
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self._on_arrays: bool | None = None

    def __call__(self, inputs: Tensor) -> Any:
        """What the function returns; arrays become tensors on the device of the input."""
        if self._on_arrays:
            return self._array_scores(inputs)
        if self._on_arrays is None:
            return self._first(inputs)
        return self.function(inputs)

    def _first(self, inputs: Tensor) -> Any:
        kept = inputs.detach().clone()  # the function may write into its input
        try:
            scores = self.function(inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            try:
                scores = self._array_scores(kept)
            except ModelError:
                raise
            except Exception:
                raise error from None
            self._on_arrays = True
            return scores
        self._check_arrays(scores, kept)
        self._on_arrays = False
        return scores

    def _array_scores(self, inputs: Tensor) -> Tensor:
        if torch.is_autocast_enabled(inputs.device.type):
            raise ModelError(
                "it takes NumPy arrays, in float32 only; give precision='float32' (--set precision=float32)"
            )
        return host_scores(self.function, inputs)

    def _check_arrays(self, scores: Any, inputs: Tensor) -> None:
        """Raises `ModelError` where the function takes arrays too and returns something else for them."""
        try:
            other = host_scores(self.function, inputs.clone())
        except Exception:  # it takes tensors only
            return
        if torch.is_autocast_enabled(inputs.device.type):
            with torch.autocast(inputs.device.type, enabled=False):
                scores = self.function(inputs)
        mine = torch.from_numpy(scores) if isinstance(scores, np.ndarray) else scores
        if isinstance(mine, Tensor) and not _close(mine, other):
            raise ModelError(
                "it returns other scores for NumPy arrays than for tensors, or draws at random; wrap it, so that it "
                "takes one of them only: lambda x: f(x.numpy()), or lambda x: f(x.clone())"
            )


def _close(mine: Tensor, other: Tensor) -> bool:
    one, two = mine.detach().cpu().double(), other.cpu().double()
    return one.shape == two.shape and torch.allclose(one, two, rtol=1e-3, atol=1e-4, equal_nan=True)
