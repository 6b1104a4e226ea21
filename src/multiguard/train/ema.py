"""An exponential moving average of the weights: what is validated and kept."""

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Average(Generic[M]):
    """A copy of a module whose floating-point tensors follow it, slower and slower as training goes on.

    Args:
        module: What to follow, on its device.
        decay: The slowest pace: the share of the old average that a step keeps.
    """

    def __init__(self, module: M, decay: float) -> None:
        self.module: M = copy.deepcopy(module).eval().requires_grad_(False)
        self.decay = decay
        self._ours, self._theirs = _pairs(self.module, module)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the followed module after this step (from 0); early steps move further."""
        keep = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._ours, self._theirs, 1 - keep)


def _pairs(ours: nn.Module, theirs: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors themselves, not their `data`: a distributed wrapper gives a parameter other storage."""
    mine, other = ours.state_dict(keep_vars=True), theirs.state_dict(keep_vars=True)
    names = [name for name, tensor in mine.items() if tensor.is_floating_point()]
    return [mine[name] for name in names], [other[name] for name in names]
