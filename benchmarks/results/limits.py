"""How close each certificate comes to the exact limit, on small cases where a linear program finds it."""

import numpy as np
from tests.certify.cases import random_distribution
from tests.certify.limit import limit_radius

from benchmarks.results.markdown_tables import markdown
from multiguard.certify import Method, TopK, exact_radii
from multiguard.io.rounding import percent_value

METHODS: tuple[Method, ...] = ("coupled", "joint", "paper", "independent", "jia")


def limit_block(cases: int) -> dict[str, str]:
    """The mean fraction of the limit that each method reaches with exact probabilities, by k' and k."""
    rows = []
    for labels, k_prime, k, true in ((6, 1, 2, 2), (6, 2, 2, 3), (8, 2, 3, 3), (6, 3, 3, 3)):
        reached = limit_fractions(cases, labels, k_prime, k, true)
        means = [percent_value(float(np.mean([fractions[method] for fractions in reached]))) for method in METHODS]
        rows.append([f"c = {labels}, k' = {k_prime}, k = {k}, d = {true}", str(len(reached)), *means])
    return {"limit": markdown(["case", "radii", *METHODS], rows)}


def limit_fractions(cases: int, labels: int, k_prime: int, k: int, true: int) -> list[dict[Method, float]]:
    """The fraction of every finite limit, neither close to 0 nor far away, that each method reaches."""
    found = []
    for seed in range(cases):
        sets, chances = random_distribution(np.random.default_rng(seed), labels=labels, k_prime=k_prime)
        chances = 0.99 * chances + 0.01 / len(sets)
        own = sorted(int(i) for i in np.argsort(-(chances @ sets))[:true])
        radii = {m: exact_radii(sets, chances, own, TopK(k, k_prime), sigma=1.0, method=m).true for m in METHODS}
        for e, proved in enumerate(radii["joint"], start=1):
            limit = limit_radius(sets, chances, own, k=k, e=e) if 0.05 < proved < 5 else np.inf
            if np.isfinite(limit):
                found.append({m: max(float(each[e - 1]), 0.0) / limit for m, each in radii.items()})
    return found
