"""Training of base classifiers under the noise that they will be smoothed with.

The config imports no torch; `train` does.
"""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names
from multiguard.train.config import TrainConfig

if TYPE_CHECKING:
    from multiguard.train.loop import TrainResult, train

__all__ = ["TrainConfig", "TrainResult", "train"]

__getattr__ = lazy_names(__name__, {"loop": ["TrainResult", "train"]})
