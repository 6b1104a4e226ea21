"""What votes prove of a set of pictures: certificates, certified precision, recall and F1 at a radius, and sweeps."""

from multiguard.evaluate.bootstrap import Bands
from multiguard.evaluate.certificates import Certificates, certify_votes
from multiguard.evaluate.curve import Curve, curves, radius_grid
from multiguard.evaluate.folder import CertificatesFolder, read_certificates, write_certificates
from multiguard.evaluate.label import LabelScores, label_scores
from multiguard.evaluate.scores import Averaging, Scores, image_scores, set_scores
from multiguard.evaluate.setting import Setting
from multiguard.evaluate.sweeps import Parameter, sweep
from multiguard.evaluate.tables import read_curves, write_curves

__all__ = [
    "Averaging",
    "Bands",
    "Certificates",
    "CertificatesFolder",
    "Curve",
    "LabelScores",
    "Parameter",
    "Scores",
    "Setting",
    "certify_votes",
    "curves",
    "image_scores",
    "label_scores",
    "radius_grid",
    "read_certificates",
    "read_curves",
    "set_scores",
    "sweep",
    "write_certificates",
    "write_curves",
]
