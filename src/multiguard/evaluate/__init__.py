"""What votes prove of a set of images: certificates, certified precision, recall and F1 at a radius, and sweeps."""

from multiguard.evaluate.attacks import (
    AttackCurve,
    AttackedImage,
    AttackOutcome,
    Attacks,
    Goal,
    attack_curves,
    evaluated_size,
    read_attacks,
)
from multiguard.evaluate.calibration import CalibrateConfig, Calibration, calibrate, read_calibration
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.certification import LabelSource, certify_votes, make_certificates
from multiguard.evaluate.config import CertifyConfig, SweepConfig
from multiguard.evaluate.curves import (
    Curve,
    curves,
    method_curve,
    paired_differences,
    radius_grid,
)
from multiguard.evaluate.results import Results, read_certificates, write_certificates
from multiguard.evaluate.scores import (
    Averaging,
    LabelScores,
    Scores,
    label_scores,
    prediction_scores,
    set_scores,
)

__all__ = [
    "AttackCurve",
    "AttackOutcome",
    "AttackedImage",
    "Attacks",
    "Averaging",
    "CalibrateConfig",
    "Calibration",
    "Certificates",
    "CertifyConfig",
    "Curve",
    "Goal",
    "LabelScores",
    "LabelSource",
    "Results",
    "Scores",
    "SweepConfig",
    "attack_curves",
    "calibrate",
    "certify_votes",
    "curves",
    "evaluated_size",
    "label_scores",
    "make_certificates",
    "method_curve",
    "paired_differences",
    "prediction_scores",
    "radius_grid",
    "read_attacks",
    "read_calibration",
    "read_certificates",
    "set_scores",
    "write_certificates",
]
