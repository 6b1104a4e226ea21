"""A model of a user's own, for the tests of `module:function`."""

from torch import Tensor

from multiguard.models import Classifier


def a_function(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :4]


def a_classifier() -> Classifier:
    return Classifier(a_function, ["own 0", "own 1", "own 2", "own 3"], output="probabilities", name="my own")
