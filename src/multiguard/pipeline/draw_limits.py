"""What a number of draws can prove at best: if all of them agree on one label."""

import math

import numpy as np

from multiguard.certify.noise import BandAblation, Gaussian, Noise
from multiguard.certify.radii import certified_radii
from multiguard.certify.rules import Method, Rule, TopK


def largest_radius(draws: int, rule: Rule, num_labels: int, noise: Noise, alpha: float) -> float:
    """The radius that so many draws prove if all of them agree on one label; -inf if they prove nothing.

    >>> largest_radius(5, TopK(k=1, k_prime=1), 10, Gaussian(0.5), 0.001)
    -inf
    >>> round(largest_radius(1000, TopK(k=1, k_prime=1), 10, Gaussian(0.5), 0.001), 2)
    1.21
    """
    hits = np.zeros((draws, num_labels), bool)
    hits[:, 0] = True
    others = rule.k_prime - 1 if isinstance(rule, TopK) else 0
    for place in range(others):
        hits[np.arange(draws), 1 + (np.arange(draws) * others + place) % (num_labels - 1)] = True
    method: Method = "enumerated" if isinstance(noise, BandAblation) else "joint"
    radius = float(certified_radii(hits, [0], rule, noise=noise, alpha=alpha, method=method).true[0])
    return radius if radius >= 0 else -math.inf


def fewest_draws(rule: Rule, num_labels: int, alpha: float) -> int:
    """The fewest draws that prove anything if all of them agree on one label.

    >>> fewest_draws(TopK(k=1, k_prime=1), 10, 0.001)
    12
    """
    fewest = 1
    while largest_radius(fewest, rule, num_labels, Gaussian(1.0), alpha) < 0:
        fewest += 1
    return fewest


def nothing_words(draws: int, rule: Rule, num_labels: int, alpha: float) -> str:
    """Why so many draws prove nothing, and how many would."""
    fewest = fewest_draws(rule, num_labels, alpha)
    return (
        f"{draws} draws prove nothing, even if all of them agree, so every certified number is 0: at alpha = {alpha:g} "
        f"({rule_words(rule)}) it takes {fewest} draws or more"
    )


def rule_words(rule: Rule) -> str:
    """The parameters of a rule."""
    return f"k = {rule.k}, k' = {rule.k_prime}" if isinstance(rule, TopK) else f"t = {rule.t:g}"
