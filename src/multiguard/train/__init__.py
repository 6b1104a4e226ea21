"""Training of base classifiers under the noise that they will be smoothed with.

Here are the hyperparameters alone, which import no torch; `train` is in `loop`, the losses are in `losses`.
"""

from multiguard.train.hyperparameters import Hyperparameters, hyperparameters_for

__all__ = ["Hyperparameters", "hyperparameters_for"]
