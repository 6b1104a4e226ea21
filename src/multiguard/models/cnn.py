"""The small built-in network, for the built-in digits and for machines without a GPU."""

import torch
from torch import Tensor, nn


class SmallCnn(nn.Module):
    """A convolutional network of about 300,000 weights that a CPU trains in a minute or two.

    A wide first layer averages out noise. A label is present if any part of the image shows it, so features are
    pooled by their maximum as well as their mean. The first stage has `width` channels, the last four times as many.
    """

    def __init__(self, classes: int, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            *_block(3, width, kernel=5),
            *_block(width, 2 * width, stride=2),
            *_block(2 * width, 2 * width),
            *_block(2 * width, 4 * width, stride=2),
            *_block(4 * width, 4 * width),
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """One logit per label for each image, (B, 3, height, width) to (B, c)."""
        features = self.stages(images).flatten(2)
        pooled = torch.cat((features.amax(2), features.mean(2)), dim=1)
        scores: Tensor = self.head(self.dropout(pooled))
        return scores


def _block(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
