"""Pure mathematics: from the votes of a smoothed classifier to what they prove. NumPy and SciPy only."""

from multiguard.certify.arguments import METHODS
from multiguard.certify.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.looks import (
    Looks,
    adaptive_radii,
    adaptive_radii_batch,
    adaptive_threshold_radii_batch,
    look_plan,
)
from multiguard.certify.radii import certified_radii, certified_radii_batch, exact_radii
from multiguard.certify.size import certified_size
from multiguard.certify.stopping import StoppingRule, ThresholdStoppingRule
from multiguard.certify.tally import hits_from_ranked
from multiguard.certify.threshold import (
    ThresholdRadii,
    exact_threshold_radii,
    threshold_label_radii,
    threshold_radii,
    threshold_radii_batch,
)
from multiguard.certify.types import Method, ThresholdMethod

__all__ = [
    "METHODS",
    "Looks",
    "Method",
    "StoppingRule",
    "ThresholdMethod",
    "ThresholdRadii",
    "ThresholdStoppingRule",
    "adaptive_radii",
    "adaptive_radii_batch",
    "adaptive_threshold_radii_batch",
    "certified_radii",
    "certified_radii_batch",
    "certified_size",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "exact_radii",
    "exact_threshold_radii",
    "hits_from_ranked",
    "look_plan",
    "threshold_label_radii",
    "threshold_radii",
    "threshold_radii_batch",
]
