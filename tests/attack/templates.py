"""A digits classifier that is made in half a second: correlations with real digits, and a linear head on them."""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from multiguard.data import DigitsDataset
from multiguard.models import Classifier, load

SIGMA = 0.25
SIZE = 16
TEMPLATES = 40


class Templates(nn.Module):
    """How well any part of the image matches each template, and one linear score per label."""

    def __init__(self, templates: Tensor) -> None:
        super().__init__()
        self.register_buffer("templates", templates)
        self.head = nn.Linear(2 * len(templates), 10)

    def features(self, images: Tensor) -> Tensor:
        match = functional.relu(functional.conv2d(images.mean(dim=1, keepdim=True), self.templates, padding=2))
        return torch.cat([match.amax(dim=(2, 3)), match.mean(dim=(2, 3))], dim=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


@cache
def digits_classifier() -> Classifier:
    """Ridge regression on noisy training images; the same every time, and made once."""
    train = DigitsDataset("train", size=SIZE, images=800)
    images = torch.stack([torch.from_numpy(train[i].image) for i in range(len(train))]).float() / 255
    targets = torch.zeros(len(train), 10)
    for row, labels in zip(targets, train.labels, strict=True):
        row[list(labels)] = 1
    network = Templates(torch.stack([_template(train, images, i) for i in range(TEMPLATES)])[:, None])
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        _fit(network, network.features(images + SIGMA * noise), targets)
    return load(network, labels=train.label_names, output="logits", name="templates")


def _template(train: DigitsDataset, images: Tensor, index: int) -> Tensor:
    box = train.layout(index)[0]
    digit = images[index, 0, box.top : box.top + box.side, box.left : box.left + box.side]
    small = functional.interpolate(digit[None, None], (7, 7), mode="bilinear")[0, 0]
    return (small - small.mean()) / (small - small.mean()).norm()


def _fit(network: Templates, features: Tensor, targets: Tensor) -> None:
    mean, rest = features.mean(dim=0), features - features.mean(dim=0)
    weights = torch.linalg.solve(rest.T @ rest + torch.eye(rest.shape[1]), rest.T @ (targets - targets.mean(dim=0)))
    network.head.weight.copy_(weights.T)
    network.head.bias.copy_(targets.mean(dim=0) - mean @ weights)


def held_out_images(count: int) -> list[tuple[str, np.ndarray, tuple[int, ...]]]:
    """Id, image and labels of the first images of the test split."""
    test = DigitsDataset("test", size=SIZE, images=count)
    return [(sample.id, sample.image, sample.labels) for sample in (test[i] for i in range(count))]
