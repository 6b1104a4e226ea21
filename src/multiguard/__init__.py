"""Provable robustness for any multi-label classifier.

The mathematics is here at once; what needs torch, pyarrow or Pillow is imported when its name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from multiguard.certify import (
    METHODS,
    Looks,
    Method,
    Radii,
    Rule,
    RuleName,
    StoppingRule,
    Threshold,
    TopK,
    certified_radii,
    certified_radii_batch,
    certified_size,
    clopper_pearson_lower,
    clopper_pearson_upper,
    exact_radii,
    hits_from_ranked,
    label_radii,
    look_plan,
    make_rule,
)
from multiguard.errors import DataError, ImageError, InvalidInputError, ModelError, MultiGuardError, VotesError
from multiguard.evaluate import (
    Attacks,
    Averaging,
    Certificates,
    CertifyConfig,
    Scores,
    attack_curves,
    certify_votes,
    curves,
    image_scores,
    judged_size,
    label_scores,
    set_scores,
    sweep,
)
from multiguard.results import read_attacks, read_certificates, write_certificates
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.attack import AttackPlan, Victim, attack_images
    from multiguard.data import Dataset, Sample, check_dataset, open_dataset, subset
    from multiguard.models import Classifier, load_classifier
    from multiguard.smooth import Prediction, Smoother, vote_dataset
    from multiguard.votes import Votes, read_votes

__all__ = [
    "METHODS",
    "AttackPlan",
    "Attacks",
    "Averaging",
    "Certificates",
    "CertifyConfig",
    "Classifier",
    "DataError",
    "Dataset",
    "ImageError",
    "InvalidInputError",
    "Looks",
    "Method",
    "ModelError",
    "MultiGuardError",
    "Prediction",
    "Radii",
    "Rule",
    "RuleName",
    "Sample",
    "Scores",
    "Smoother",
    "StoppingRule",
    "Threshold",
    "TopK",
    "Victim",
    "Votes",
    "VotesError",
    "__version__",
    "attack_curves",
    "attack_images",
    "certified_radii",
    "certified_radii_batch",
    "certified_size",
    "certify_votes",
    "check_dataset",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "curves",
    "exact_radii",
    "hits_from_ranked",
    "image_scores",
    "judged_size",
    "label_radii",
    "label_scores",
    "load_classifier",
    "look_plan",
    "make_rule",
    "open_dataset",
    "read_attacks",
    "read_certificates",
    "read_votes",
    "set_scores",
    "subset",
    "sweep",
    "vote_dataset",
    "write_certificates",
]

_LATER = {
    "multiguard.attack": ("AttackPlan", "Victim", "attack_images"),
    "multiguard.data": ("Dataset", "Sample", "check_dataset", "open_dataset", "subset"),
    "multiguard.models": ("Classifier", "load_classifier"),
    "multiguard.smooth": ("Prediction", "Smoother", "vote_dataset"),
    "multiguard.votes": ("Votes", "read_votes"),
}


def __getattr__(name: str) -> Any:
    for room, names in _LATER.items():
        if name in names:
            return getattr(import_module(room), name)
    raise AttributeError(f"module 'multiguard' has no attribute {name!r}")
