"""Smoothing: a base classifier under Gaussian noise, its votes and its prediction."""

from multiguard.smooth.adaptive import AdaptivePlan
from multiguard.smooth.dataset import vote_dataset
from multiguard.smooth.live_prediction import LivePrediction
from multiguard.smooth.noise_source import DEVICE_PHILOX, HOST_PHILOX, NoiseSource
from multiguard.smooth.prediction import Prediction
from multiguard.smooth.settings import Precision, Settings
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
