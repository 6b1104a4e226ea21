"""Images of coloured pixels and a classifier that counts them: a few hidden or changed pixels leave most labels."""

import numpy as np
import torch
from torch import Tensor, nn

SIDE = 12
COLOURS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]])
NAMES = ("red", "green", "blue", "yellow", "magenta", "cyan")


class ColourCounts(nn.Module):
    """The score of a colour is how many pixels are near it; hidden pixels are near none."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("colours", COLOURS)

    def forward(self, images: Tensor) -> Tensor:
        away = images[:, None] - self.colours[None, :, :, None, None]
        return torch.exp(-3 * away.square().sum(dim=2)).sum(dim=(2, 3))


def mosaics(count: int) -> list[tuple[str, np.ndarray, tuple[int, ...]]]:
    """Id, image and labels: two colours, one in about 60 % of the pixels."""
    made = []
    for number in range(count):
        rng = np.random.default_rng(number)
        labels = rng.choice(len(NAMES), 2, replace=False)
        pixels = COLOURS.numpy()[rng.choice(labels, (SIDE, SIDE), p=(0.6, 0.4))].transpose(2, 0, 1)
        made.append((f"mosaic {number}", pixels.astype(np.float32), tuple(sorted(labels.tolist()))))
    return made
