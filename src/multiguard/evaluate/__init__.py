"""What votes prove of a set of images: certificates, certified precision, recall and F1 at a radius, and sweeps."""

from multiguard.evaluate.attacked import AttackCurve, AttackedImage, Attacks, Reached, attack_curves
from multiguard.evaluate.bootstrap import Bands
from multiguard.evaluate.certificates import Certificates, certify_votes
from multiguard.evaluate.curve import Curve, curves, radius_grid
from multiguard.evaluate.judged import Goal, judged_size
from multiguard.evaluate.label import LabelScores, label_scores
from multiguard.evaluate.question import LabelSource
from multiguard.evaluate.scores import (
    Averaging,
    Scores,
    image_scores,
    set_scores,
    threshold_image_scores,
    threshold_set_scores,
)
from multiguard.evaluate.setting import AnySetting, Setting, ThresholdSetting
from multiguard.evaluate.sweeps import Parameter, sweep

__all__ = [
    "AnySetting",
    "AttackCurve",
    "AttackedImage",
    "Attacks",
    "Averaging",
    "Bands",
    "Certificates",
    "Curve",
    "Goal",
    "LabelScores",
    "LabelSource",
    "Parameter",
    "Reached",
    "Scores",
    "Setting",
    "ThresholdSetting",
    "attack_curves",
    "certify_votes",
    "curves",
    "image_scores",
    "judged_size",
    "label_scores",
    "radius_grid",
    "set_scores",
    "sweep",
    "threshold_image_scores",
    "threshold_set_scores",
]
