"""Smoothing: a base classifier under Gaussian noise, its votes and its prediction."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.smooth.config import Precision, Settings
    from multiguard.smooth.dataset import vote_dataset
    from multiguard.smooth.noise_source import DEVICE_PHILOX, HOST_PHILOX, NoiseSource
    from multiguard.smooth.prediction import LivePrediction, Prediction
    from multiguard.smooth.schedule import AdaptivePlan
    from multiguard.smooth.smoother import Smoother

__all__ = [
    "DEVICE_PHILOX",
    "HOST_PHILOX",
    "AdaptivePlan",
    "LivePrediction",
    "NoiseSource",
    "Precision",
    "Prediction",
    "Settings",
    "Smoother",
    "vote_dataset",
]

__getattr__ = lazy_names(
    __name__,
    {
        "schedule": ["AdaptivePlan"],
        "dataset": ["vote_dataset"],
        "noise_source": ["DEVICE_PHILOX", "HOST_PHILOX", "NoiseSource"],
        "prediction": ["LivePrediction", "Prediction"],
        "config": ["Precision", "Settings"],
        "smoother": ["Smoother"],
    },
)
