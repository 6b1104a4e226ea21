"""How near each certificate comes to the exact limit, over small cases where a linear program finds it."""

import numpy as np
from tests.certify.cases import random_distribution
from tests.certify.limit import limit_radius

from benchmarks.results.tables import markdown
from multiguard import Method, exact_radii
from multiguard.report.rounding import percent_value

METHODS: tuple[Method, ...] = ("joint", "paper", "independent", "jia")


def limit_block(cases: int) -> dict[str, str]:
    """The mean share of the limit that each method's radius reaches with exact probabilities, by k' and k."""
    rows = []
    for labels, k_prime, k, true in ((6, 1, 2, 2), (6, 2, 2, 3), (8, 2, 3, 3), (6, 3, 3, 3)):
        found = shares(cases, labels, k_prime, k, true)
        means = [percent_value(float(np.mean([share[method] for share in found]))) for method in METHODS]
        rows.append([f"c = {labels}, k' = {k_prime}, k = {k}, d = {true}", str(len(found)), *means])
    return {"limit": markdown(["case", "radii", *METHODS], rows)}


def shares(cases: int, labels: int, k_prime: int, k: int, true: int) -> list[dict[Method, float]]:
    """Each method's share of every finite limit that is neither next to 0 nor far away."""
    found = []
    for seed in range(cases):
        sets, chances = random_distribution(np.random.default_rng(seed), labels=labels, k_prime=k_prime)
        chances = 0.99 * chances + 0.01 / len(sets)
        own = sorted(int(i) for i in np.argsort(-(chances @ sets))[:true])
        radii = {m: exact_radii(sets, chances, own, k=k, k_prime=k_prime, sigma=1.0, method=m) for m in METHODS}
        for e, proved in enumerate(radii["joint"], start=1):
            limit = limit_radius(sets, chances, own, k=k, e=e) if 0.05 < proved < 5 else np.inf
            if np.isfinite(limit):
                found.append({m: max(float(each[e - 1]), 0.0) / limit for m, each in radii.items()})
    return found
