"""Training of base classifiers under the noise that they will be smoothed with.

The hyperparameters are here at once; what needs torch is imported when its name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from multiguard.train.hyperparameters import Hyperparameters, hyperparameters_for

if TYPE_CHECKING:
    from multiguard.train.augmentation import Augmentation, add_noise, augment
    from multiguard.train.loop import TrainResult, train
    from multiguard.train.losses import asymmetric_loss, binary_cross_entropy
    from multiguard.train.trainer import mean_average_precision, noisy_map

__all__ = [
    "Augmentation",
    "Hyperparameters",
    "TrainResult",
    "add_noise",
    "asymmetric_loss",
    "augment",
    "binary_cross_entropy",
    "hyperparameters_for",
    "mean_average_precision",
    "noisy_map",
    "train",
]

_LATER = {
    "augmentation": ("Augmentation", "add_noise", "augment"),
    "loop": ("TrainResult", "train"),
    "losses": ("asymmetric_loss", "binary_cross_entropy"),
    "trainer": ("mean_average_precision", "noisy_map"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"multiguard.train.{module}"), name)
    raise AttributeError(f"module 'multiguard.train' has no attribute {name!r}")
