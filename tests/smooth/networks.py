"""Small networks that `--model tests.smooth.networks:NAME` loads in subprocesses."""

import time

import torch
from torch import Tensor, nn


def network() -> nn.Module:
    """A random linear network: whole numbers over a power of two, so no order of summation can change a vote."""
    torch.manual_seed(0)
    linear = nn.Linear(3 * 16 * 16, 10)
    with torch.no_grad():
        linear.weight.copy_((linear.weight * 512).round() / 32)
        linear.bias.zero_()
    return nn.Sequential(nn.Flatten(), linear)


class _Slow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fast = network()

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(0.05)
        scores: Tensor = self.fast(images)
        return scores


def slow() -> nn.Module:
    """The same with slow batches, so that a run can be killed on the way."""
    return _Slow()
