"""What a number of draws can prove at best: if all of them agree on one label."""

import math

import numpy as np

from multiguard.certify.draws import fixed_permutation
from multiguard.certify.noise import Gaussian, Noise
from multiguard.certify.radii import certified_radii
from multiguard.certify.rules import Method, Rule


def largest_radius(
    draws: int, rule: Rule, num_labels: int, noise: Noise, alpha: float, method: Method | None = None
) -> float:
    """The radius that so many draws prove if all of them agree on one label; -inf if they prove nothing.

    Args:
        draws: The number of draws.
        rule: The smoothed classifier.
        num_labels: c, the number of labels.
        noise: The noise.
        alpha: The error allowed.
        method: The method that will certify them; None for the default one for so many draws.

    >>> from multiguard.certify import TopK
    >>> largest_radius(5, TopK(k=1, k_prime=1), 10, Gaussian(0.5), 0.001)
    -inf
    >>> round(largest_radius(1000, TopK(k=1, k_prime=1), 10, Gaussian(0.5), 0.001), 2)
    1.22
    """
    hits = np.zeros((draws, num_labels), bool)
    hits[:, 0] = True
    others = 0 if rule.k_prime is None else rule.k_prime - 1
    for place in range(others):
        hits[np.arange(draws), 1 + (np.arange(draws) * others + place) % (num_labels - 1)] = True
    rows = hits if noise.enumerated else hits[fixed_permutation(draws)]
    radius = float(certified_radii(rows, [0], rule, noise=noise, alpha=alpha, method=method).true[0])
    return radius if radius >= 0 else -math.inf


def fewest_draws(rule: Rule, num_labels: int, alpha: float, method: Method | None = None) -> int:
    """The fewest draws that prove anything by a method if all of them agree on one label.

    >>> from multiguard.certify import TopK
    >>> fewest_draws(TopK(k=1, k_prime=1), 10, 0.001), fewest_draws(TopK(k=1, k_prime=1), 10, 0.001, "coupled")
    (12, 30)
    """
    fewest = 1
    while largest_radius(fewest, rule, num_labels, Gaussian(1.0), alpha, method) < 0:
        fewest += 1
    return fewest


def nothing_words(draws: int, rule: Rule, num_labels: int, alpha: float, method: Method | None = None) -> str:
    """Why so many draws prove nothing, and how many would."""
    fewest = fewest_draws(rule, num_labels, alpha, method)
    by = "" if method is None else f" by the method {method}"
    return (
        f"{draws} draws prove nothing{by}, even if all of them agree, so every certified number is 0: at alpha = "
        f"{alpha:g} ({rule_words(rule)}) it takes {fewest} draws or more"
    )


def rule_words(rule: Rule) -> str:
    """The parameters of a rule."""
    return f"t = {rule.t:g}" if rule.t is not None else f"k = {rule.k}, k' = {rule.k_prime}"
