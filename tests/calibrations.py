"""Calibrations made by hand, of a classifier that need not have voted."""

from multiguard.evaluate import CalibrateConfig, Calibration
from multiguard.evaluate.calibration import classifier_facts
from multiguard.smooth import Smoother
from multiguard.smooth.predictor import execution_facts


def calibration_of(smoother: Smoother, recall=0.8, radius=0.25, **changes) -> Calibration:
    """A calibration of this classifier: 12 of 60 draws must have a label among their best."""
    values = {
        "config": CalibrateConfig(recall=recall, radius=radius),
        "k_prime": 1,
        "least_hits": 12,
        "draws": 60,
        "noise": str(smoother.noise),
        "label_names": smoother.classifier.label_names,
        "model": smoother.classifier.name,
        "image_size": smoother.classifier.image_size,
        "classifier": classifier_facts(execution_facts(smoother)),
        "images": 40,
        "votes_draws": 100,
        "votes": ("v",),
        "used": (),
    }
    return Calibration(**values | changes)
