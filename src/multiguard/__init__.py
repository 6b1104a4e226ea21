"""Provable robustness for any multi-label classifier.

Every name is imported when it is first used, so that certifying and reporting work where torch is not installed.
"""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.attack import AttackConfig, attack_images
    from multiguard.certify import (
        METHODS,
        Radii,
        Threshold,
        TopK,
        certified_radii,
        certified_radii_batch,
        certified_size,
        exact_radii,
        label_radii,
    )
    from multiguard.data import Dataset, Sample, open_dataset, subset
    from multiguard.errors import MultiGuardError
    from multiguard.evaluate import Certificates, CertifyConfig, Results, certify_votes, read_certificates
    from multiguard.models import Classifier, load
    from multiguard.smooth import Smoother, vote_dataset
    from multiguard.votes import Votes, read_votes

_ROOMS = {
    "attack": ("AttackConfig", "attack_images"),
    "certify": (
        *("METHODS", "Radii", "Threshold", "TopK", "certified_radii", "certified_radii_batch"),
        *("certified_size", "exact_radii", "label_radii"),
    ),
    "data": ("Dataset", "Sample", "open_dataset", "subset"),
    "errors": ("MultiGuardError",),
    "evaluate": ("Certificates", "CertifyConfig", "Results", "certify_votes", "read_certificates"),
    "models": ("Classifier", "load"),
    "smooth": ("Smoother", "vote_dataset"),
    "votes": ("Votes", "read_votes"),
}

__all__ = [
    "METHODS",
    "AttackConfig",
    "Certificates",
    "CertifyConfig",
    "Classifier",
    "Dataset",
    "MultiGuardError",
    "Radii",
    "Results",
    "Sample",
    "Smoother",
    "Threshold",
    "TopK",
    "Votes",
    "__version__",
    "attack_images",
    "certified_radii",
    "certified_radii_batch",
    "certified_size",
    "certify_votes",
    "exact_radii",
    "label_radii",
    "load",
    "open_dataset",
    "read_certificates",
    "read_votes",
    "subset",
    "vote_dataset",
]


__getattr__ = lazy_names(__name__, _ROOMS)


def __dir__() -> list[str]:
    return sorted(__all__)
