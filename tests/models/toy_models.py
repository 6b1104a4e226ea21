"""Models of a user's own, for the tests of `module:function`."""

import torch
from torch import Tensor, nn

from multiguard.models import Classifier


def a_module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))


def a_function(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :4]


def a_callable():
    return a_function


def a_classifier() -> Classifier:
    return Classifier(a_function, ["own 0", "own 1", "own 2", "own 3"], output="probabilities", name="my own")


def a_number() -> int:
    return 3


not_a_function = 3
