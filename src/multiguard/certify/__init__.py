"""Pure mathematics: from the votes of a smoothed classifier to what they prove. NumPy and SciPy only."""

from multiguard.certify.arguments import METHODS
from multiguard.certify.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.radii import certified_radii, certified_radii_batch, exact_radii
from multiguard.certify.size import certified_size
from multiguard.certify.tally import hits_from_ranked
from multiguard.certify.types import Method

__all__ = [
    "METHODS",
    "Method",
    "certified_radii",
    "certified_radii_batch",
    "certified_size",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "exact_radii",
    "hits_from_ranked",
]
