"""The joint certificate between the paper's and the exact limit."""

import numpy as np
import pytest
from tests.certify.cases import random_distribution
from tests.certify.limit import limit_radius

from multiguard.certify import TopK, exact_radii


def random_case(seed: int, *, c: int, k_prime: int, d: int):
    rng = np.random.default_rng(seed)
    sets, chances = random_distribution(rng, labels=c, k_prime=k_prime)
    chances = 0.99 * chances + 0.01 / len(sets)
    ranking = np.argsort(-(chances @ sets))
    # Mostly the probable labels, now and then an improbable one.
    labels = (
        sorted(int(i) for i in ranking[:d]) if seed % 3 else sorted(int(i) for i in ranking[[*range(d - 1), d + 1]])
    )
    return sets, chances, labels


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("k_prime", [1, 2, 3])
def test_joint_above_paper(d: int, k_prime: int) -> None:
    """With exact probabilities joint is never below paper, and paper never below independent."""
    strictly = 0
    for seed in range(20):
        sets, chances, labels = random_case(seed, c=8, k_prime=k_prime, d=d)
        for k in (1, 2, 4, 6):
            joint, paper, independent = (
                exact_radii(sets, chances, labels, TopK(k, k_prime), sigma=1.0, method=m).true
                for m in ("joint", "paper", "independent")
            )
            # Beyond 6 sigma doubles cannot tell a probability from 1.
            assert np.all(joint >= np.minimum(paper, 6) - 1e-9)
            assert np.all(paper >= np.minimum(independent, 6) - 1e-9)
            strictly += np.any((joint > paper + 1e-3) & (joint < 6))
    assert (strictly > 0) == (k_prime > 1)  # one label a draw has one layer: then the two are the same


def test_exact_limit() -> None:
    """Also reports how close: the mean ratio of the radius to the limit, over sizes that have a finite one."""
    ratios = {"joint": [], "paper": []}
    for seed in range(6):
        c, k_prime, d, k = [(6, 2, 2, 2), (5, 1, 2, 2), (6, 2, 3, 3), (5, 2, 1, 2), (6, 3, 2, 2)][seed % 5]
        sets, chances, labels = random_case(seed, c=c, k_prime=k_prime, d=d)
        radii = {m: exact_radii(sets, chances, labels, TopK(k, k_prime), sigma=1.0, method=m).true for m in ratios}
        for e, proved in enumerate(radii["joint"], start=1):
            if not np.isfinite(proved):
                continue
            limit = limit_radius(sets, chances, labels, k=k, e=e)
            assert proved <= limit + 1e-6, (seed, e)
            if np.isfinite(limit) and limit > 0.05:
                for method, found in ratios.items():
                    found.append(max(float(radii[method][e - 1]), 0.0) / limit)
    joint, paper = (np.mean(found) for found in ratios.values())
    assert len(ratios["joint"]) >= 6
    assert joint > paper
    assert joint > 0.9
