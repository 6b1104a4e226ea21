"""Provable robustness for any multi-label classifier."""

from multiguard.certify import (
    METHODS,
    Method,
    certified_radii,
    certified_radii_batch,
    certified_size,
    clopper_pearson_lower,
    clopper_pearson_upper,
    exact_radii,
    hits_from_ranked,
)
from multiguard.errors import DataError, InvalidInputError, ModelError, MultiGuardError, VotesError
from multiguard.evaluate import Averaging, Scores, image_scores, set_scores
from multiguard.version import __version__

__all__ = [
    "METHODS",
    "Averaging",
    "DataError",
    "InvalidInputError",
    "Method",
    "ModelError",
    "MultiGuardError",
    "Scores",
    "VotesError",
    "__version__",
    "certified_radii",
    "certified_radii_batch",
    "certified_size",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "exact_radii",
    "hits_from_ranked",
    "image_scores",
    "set_scores",
]
