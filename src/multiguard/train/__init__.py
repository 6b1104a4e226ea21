"""The training room: base classifiers that know the noise they will be smoothed with."""

from multiguard.train.augment import Augmentation, augment
from multiguard.train.loop import TrainResult, train
from multiguard.train.loss import asymmetric_loss, binary_cross_entropy
from multiguard.train.metrics import mean_average_precision
from multiguard.train.recipe import Recipe, recipe_for
from multiguard.train.validate import noisy_map

__all__ = [
    "Augmentation",
    "Recipe",
    "TrainResult",
    "asymmetric_loss",
    "augment",
    "binary_cross_entropy",
    "mean_average_precision",
    "noisy_map",
    "recipe_for",
    "train",
]
