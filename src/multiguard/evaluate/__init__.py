"""What votes prove of a set of images: certificates, certified precision, recall and F1 at a radius, and sweeps."""

from multiguard.evaluate.attack_outcomes import (
    AttackCurve,
    AttackedImage,
    AttackOutcome,
    Attacks,
    Goal,
    attack_curves,
    evaluated_size,
)
from multiguard.evaluate.certificates import Certificates, certify_votes
from multiguard.evaluate.certifier import LabelSource
from multiguard.evaluate.config import CertifyConfig, Parameter
from multiguard.evaluate.curves import Curve, curves, method_curve, paired_differences, radius_grid, typical_radius
from multiguard.evaluate.intervals import Bands, Differences, mean_interval
from multiguard.evaluate.scores import (
    Averaging,
    LabelScores,
    Scores,
    image_scores,
    label_scores,
    prediction_scores,
    set_scores,
)
from multiguard.evaluate.sweeps import sweep
from multiguard.evaluate.tuning import Candidate, Metric, Tuned, candidate_rules, tune

__all__ = [
    "AttackCurve",
    "AttackOutcome",
    "AttackedImage",
    "Attacks",
    "Averaging",
    "Bands",
    "Candidate",
    "Certificates",
    "CertifyConfig",
    "Curve",
    "Differences",
    "Goal",
    "LabelScores",
    "LabelSource",
    "Metric",
    "Parameter",
    "Scores",
    "Tuned",
    "attack_curves",
    "candidate_rules",
    "certify_votes",
    "curves",
    "evaluated_size",
    "image_scores",
    "label_scores",
    "mean_interval",
    "method_curve",
    "paired_differences",
    "prediction_scores",
    "radius_grid",
    "set_scores",
    "sweep",
    "tune",
    "typical_radius",
]
