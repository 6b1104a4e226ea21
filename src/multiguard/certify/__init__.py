"""Pure mathematics: from the votes of a smoothed classifier to what they prove. NumPy and SciPy only."""

from multiguard.certify.ablation import BandAblation, PixelAblation
from multiguard.certify.additive import Gaussian, Uniform
from multiguard.certify.betting import settled_by_betting
from multiguard.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.draws import hits_from_ranked
from multiguard.certify.noise import Noise, parse_noise, resolve_noise
from multiguard.certify.radii import (
    Radii,
    certified_radii,
    certified_radii_batch,
    certified_size,
    exact_radii,
    label_radii,
)
from multiguard.certify.rules import METHODS, Method, Rule, RuleName, Threshold, TopK, make_rule, register_method

__all__ = [
    "METHODS",
    "BandAblation",
    "Gaussian",
    "Method",
    "Noise",
    "PixelAblation",
    "Radii",
    "Rule",
    "RuleName",
    "Threshold",
    "TopK",
    "Uniform",
    "certified_radii",
    "certified_radii_batch",
    "certified_size",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "exact_radii",
    "hits_from_ranked",
    "label_radii",
    "make_rule",
    "parse_noise",
    "register_method",
    "resolve_noise",
    "settled_by_betting",
]
