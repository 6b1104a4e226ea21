"""Small networks that `--model tests.smooth.taggers:NAME` loads, in processes of their own."""

import time

import torch
from torch import Tensor, nn


def tagger() -> nn.Module:
    """A random network: whole numbers over a power of two, so that no order of sums can change a vote."""
    torch.manual_seed(0)
    linear = nn.Linear(3 * 16 * 16, 10)
    with torch.no_grad():
        linear.weight.copy_((linear.weight * 512).round() / 32)
        linear.bias.zero_()
    return nn.Sequential(nn.Flatten(), linear)


class _Slow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fast = tagger()

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(0.05)
        found: Tensor = self.fast(images)
        return found


def slow() -> nn.Module:
    """The same, and a batch takes a while: a run of it can be watched."""
    return _Slow()
