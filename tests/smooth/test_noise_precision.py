"""How close the noise is to Gaussian noise: single values, the largest values and directions of whole images."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from multiguard.certify import Gaussian
from multiguard.smooth.noise_source import HostNoise, _box_muller, _Words, key_words, noise_key
from multiguard.smooth.torch_engine import _radius, philox4x32, standard_normal

PAIRS = 1 << 18
SMALLEST_P = 1e-4  # of each seeded test


def gaussian(uniform: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two values of Box-Muller in double precision."""
    radius = np.sqrt(-2 * np.log(uniform))
    return radius * np.cos(angle), radius * np.sin(angle)


def host_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Values as drawn, and exact ones whose uniforms lie anywhere in the cells of the drawn bits."""
    rng, words = np.random.default_rng(0), _Words().draw([noise_key(0, "precision")], [0], PAIRS)
    drawn = np.empty((1, 2 * PAIRS), dtype=np.float32)
    _box_muller(words, 1.0, drawn)
    high, low = (words[0] >> np.uint64(24)).astype(np.float64), (words[0] & np.uint64(0xFFFFFF)).astype(np.float64)
    uniform = (high + rng.random(PAIRS)) / 2**40
    return drawn[0], np.concatenate(gaussian(uniform, 2 * np.pi * (low + rng.random(PAIRS) - 0.5) / 2**24))


def device_pairs() -> tuple[np.ndarray, np.ndarray]:
    rng, key = np.random.default_rng(0), torch.tensor([key_words(noise_key(0, "precision"))], dtype=torch.int32)
    drawn = standard_normal(key, torch.tensor([0]), (2 * PAIRS,))[0].numpy()
    k0, k1, c2, c3 = (word.view(-1, 1) for word in key.unbind(1))
    block = torch.arange(PAIRS, dtype=torch.int32).view(1, -1)
    words = philox4x32((block, torch.zeros_like(block), c2, c3), (k0, k1))
    first, second, third = (word[0].to(torch.int64).numpy() for word in words[:3])
    bits = (first & 0xFFFFFFFF).astype(np.float64) * 2.0**31 + ((second & 0xFFFFFFFF) >> 1)
    angle = (third.astype(np.float64) + rng.random(PAIRS) - 0.5) * math.pi / 2**31
    return drawn, np.stack(gaussian((bits + rng.random(PAIRS)) / 2.0**63, angle), axis=1).ravel()


@pytest.mark.parametrize("pairs", [host_pairs, device_pairs])
def test_rounding(pairs):
    """Each value differs from an exact Gaussian one only by rounding."""
    drawn, exact = pairs()
    off = np.abs(drawn.astype(np.float64) - exact)
    assert np.sqrt(np.mean(off**2)) < 3e-7
    assert np.quantile(off, 0.999) < 2e-6
    assert off.max() < 5e-4  # where the radius is almost 0, the root makes much of the last digit
    assert stats.kstest(exact, "norm").pvalue > SMALLEST_P


def test_largest_values():
    """The largest possible values, and how little probability lies beyond them."""
    out = np.empty((1, 2), dtype=np.float32)
    _box_muller(np.zeros((1, 1), dtype=np.uint64), 1.0, out)
    assert out[0, 0] == pytest.approx(7.5391, abs=1e-4)
    zero = torch.zeros(1, dtype=torch.int32)
    assert _radius(zero, zero).item() == pytest.approx(9.4193, abs=1e-4)
    assert 2 * stats.norm.sf(7.5391) < 5e-14
    assert 2 * stats.norm.sf(9.4193) < 5e-21


def test_directions():
    """A certificate is about half-spaces: the noise along any direction must be N(0, 1)."""
    size, draws, rng = 3 * 16 * 16, 4000, np.random.default_rng(1)
    noise = np.empty((draws, size), dtype=np.float32)
    image, key = np.zeros(size, dtype=np.float32), noise_key(3, "directions")
    HostNoise(Gaussian(1.0)).perturb([image] * draws, [key] * draws, range(draws), noise)
    flat = np.ones(size)
    alternating = np.where(np.arange(size) % 2, 1.0, -1.0)
    first_halves = np.where(np.arange(size) < size // 2, 1.0, -1.0)
    for direction in (flat, alternating, first_halves, *rng.standard_normal((5, size))):
        along = noise.astype(np.float64) @ (direction / np.linalg.norm(direction))
        assert stats.kstest(along, "norm").pvalue > SMALLEST_P
        beyond = int((along > 1.5).sum())
        assert stats.binomtest(beyond, draws, stats.norm.sf(1.5)).pvalue > SMALLEST_P
    lengths = np.sum(noise.astype(np.float64) ** 2, axis=1)
    assert stats.kstest(lengths, stats.chi2(size).cdf).pvalue > SMALLEST_P
