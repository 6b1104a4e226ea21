"""Special cases with a formula of their own, and the corrections to the printed paper."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from multiguard.certify import (
    TopK,
    certified_radii,
    certified_radii_batch,
    clopper_pearson_lower,
    clopper_pearson_upper,
)


def votes_with(counts: list[int]) -> np.ndarray:
    """One hit a draw, label i in counts[i] draws."""
    return np.eye(len(counts), dtype=np.bool_)[np.repeat(np.arange(len(counts)), counts)]


@pytest.mark.parametrize("counts", [[900, 60, 40], [520, 480, 0], [999, 1, 0], [600, 10, 390]])
@pytest.mark.parametrize("method", ["paper", "independent"])
def test_cohen(counts: list[int], method: str) -> None:
    """One label and one prediction have the radius of Cohen."""
    alpha = 0.01
    low = clopper_pearson_lower(counts[0], 1000, alpha / 3)
    high = clopper_pearson_upper(max(counts[1:]), 1000, alpha / 3)
    if method != "independent":
        high = min(high, 1 - low)
    expected = 0.25 / 2 * (ndtri(low) - ndtri(high))
    radius = certified_radii(votes_with(counts), [0], TopK(1, 1), sigma=0.25, alpha=alpha, method=method).true[0]
    assert radius == pytest.approx(expected if expected > 0 else -np.inf, abs=1e-9)
    assert radius <= expected or expected < 0


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("method", ["paper", "jia"])
def test_jia(k: int, method: str) -> None:
    """Jia's top-k radius: the least r at which down(p) meets the mean of up over the last t of the top k."""
    counts, alpha, sigma = [700, 150, 80, 50, 20], 0.001, 0.5
    low = clopper_pearson_lower(counts[0], 1000, alpha / 5)
    high = np.array([clopper_pearson_upper(n, 1000, alpha / 5) for n in counts[1:]])
    best = -np.inf
    for t in range(1, k + 1):
        total = min(high[k - t : k].sum(), 1 - low)
        grid = np.linspace(0, 4, 400001)
        holds = ndtr(ndtri(low) - grid) > ndtr(ndtri(total) + grid) / t
        best = max(best, sigma * grid[holds].max())
    radius = certified_radii(votes_with(counts), [0], TopK(k, 1), sigma=sigma, alpha=alpha, method=method).true[0]
    assert radius == pytest.approx(best, abs=2e-5)


@pytest.mark.parametrize("method", ["joint", "paper", "jia"])
def test_thousands_of_labels(method: str) -> None:
    """The number of subsets of V leaves what a double can hold; the certificate does without them."""
    ranked = np.zeros((500, 2), dtype=np.uint16)
    ranked[:, 1] = np.arange(500) % 3000 + 1
    options = {"num_labels": 4000, "sigma": 1.0, "method": method}
    radii = certified_radii_batch([ranked], [[0, 3999]], TopK(2000, 2), **options)[0].true
    assert radii[0] > 1
    assert np.isneginf(radii[1])
    assert radii[0] >= certified_radii_batch([ranked], [[0, 3999]], TopK(20, 2), **options)[0].true[0]
