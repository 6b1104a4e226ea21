"""Noise is N(0, 1), independent across draws and images, and keyed by (noise seed, image id, draw) alone."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from multiguard.certify import Gaussian
from multiguard.errors import InvalidInputError
from multiguard.smooth.noise_source import HostNoise, _box_muller, key_words, noise_key
from multiguard.smooth.torch_engine import standard_normal

SMALLEST_P = 1e-4  # of each seeded test; a generator that is wrong fails by many orders of magnitude
KEY_OF_SEED_0 = "c3b6c74b3df93d6653b282fe685deda7"


def host_rows(keys: list[bytes], draws: list[int], count: int) -> np.ndarray:
    out = np.empty((len(keys), count), dtype=np.float32)
    HostNoise(Gaussian(1.0)).perturb([np.zeros(count, dtype=np.float32)] * len(keys), keys, draws, out)
    return out


def device_rows(keys: list[bytes], draws: list[int], count: int) -> np.ndarray:
    words = torch.tensor([key_words(key) for key in keys], dtype=torch.int32)
    return standard_normal(words, torch.tensor(draws), (count,)).numpy()


def host(key: bytes, draw: int, count: int) -> np.ndarray:
    return host_rows([key], [draw], count)[0]


def device(key: bytes, draw: int, count: int) -> np.ndarray:
    return device_rows([key], [draw], count)[0]


both = pytest.mark.parametrize("source", [host, device])
both_rows = pytest.mark.parametrize("rows", [host_rows, device_rows])


@pytest.mark.parametrize("count", [1, 2, 999, 1000])
def test_host_reference(count):
    """Host noise is Box-Muller of NumPy's Philox."""
    key, draw = noise_key(7, "x"), 4_000_000_000
    bits = np.random.Philox(key=int.from_bytes(key, "little"), counter=draw << 128)
    expected = []
    for word in bits.random_raw(-(-count // 2)).tolist():
        radius = math.sqrt(-2 * math.log(((word >> 24) + 0.5) / 2**40))
        angle = 2 * math.pi * (word & 0xFFFFFF) / 2**24
        expected.append((radius * math.cos(angle), radius * math.sin(angle)))
    cosines, sines = zip(*expected, strict=True)
    assert host(key, draw, count) == pytest.approx((cosines + sines)[:count], abs=5e-6)


@pytest.mark.parametrize("count", [5, 48, 40_001])
@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (7, 1), (64, 1), (7, 3), (64, 3)])
def test_rows_and_threads(rows, threads, count):
    """Host noise depends neither on the other rows nor on threads."""
    keys = [noise_key(0, f"{row % 3}") for row in range(64)]
    noise, found = HostNoise(Gaussian(1.0), threads), np.empty((64, count), dtype=np.float32)
    image = np.zeros(count, dtype=np.float32)
    for start in range(0, 64, rows):
        part = slice(start, start + rows)
        noise.perturb([image] * len(keys[part]), keys[part], range(64)[part], found[part])
    for row in range(64):
        assert np.array_equal(found[row], host(keys[row], row, count))


def test_extreme_words():
    """The smallest and the largest word give finite values."""
    out = np.empty((1, 4), dtype=np.float32)
    _box_muller(np.array([[0, (1 << 64) - 1]], dtype=np.uint64), 1.0, out)
    assert out[0].tolist() == pytest.approx([math.sqrt(2 * 41 * math.log(2)), 0, 0, 0], abs=1e-5)


def test_different_keys():
    """Another seed, image id or stream gives another key; an unknown stream is refused."""
    parts = itertools.product((0, 1, -1, 10), ("a", "b", "", "1", 'a"'), ("certify", "pilot"))
    keys = [noise_key(seed, image_id, stream) for seed, image_id, stream in parts]
    assert len(set(keys)) == len(keys)
    with pytest.raises(InvalidInputError, match=r"stream must be one of .*, not 'x'"):
        noise_key(0, "a", "x")


def test_stable_key():
    """A key is the same in every release."""
    assert noise_key(0, "image").hex() == KEY_OF_SEED_0
    assert key_words(bytes(range(16))) == (0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C)


@both
def test_standard_normal(source):
    """The distribution and its moments are standard normal."""
    values = np.concatenate([source(noise_key(11, "law"), draw, 50_000) for draw in range(8)]).astype(np.float64)
    assert stats.kstest(values, "norm").pvalue > SMALLEST_P
    n = values.size
    for moment, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        z = (np.mean(values**moment) - mean) / np.sqrt(variance / n)
        assert 2 * stats.norm.sf(abs(z)) > SMALLEST_P


@both
def test_tails(source):
    """The tails have the right probability."""
    values = np.concatenate([source(noise_key(12, "tails"), draw, 200_000) for draw in range(5)])
    for limit in (2.0, 3.0, 4.0):
        for beyond in (values > limit, values < -limit):
            exact = stats.norm.sf(limit)
            assert stats.binomtest(int(beyond.sum()), values.size, exact).pvalue > SMALLEST_P


@both
def test_uncorrelated(source):
    """Draws, images, seeds, streams and neighbours are uncorrelated."""
    count = 100_000
    base = source(noise_key(0, "a"), 0, count)
    others = {
        "draw": source(noise_key(0, "a"), 1, count),
        "image": source(noise_key(0, "b"), 0, count),
        "seed": source(noise_key(1, "a"), 0, count),
        "stream": source(noise_key(0, "a", "pilot"), 0, count),
        "neighbour": np.roll(base, 1),
        "squares of neighbours": np.roll(base**2, 1),
    }
    for name, other in others.items():
        assert stats.pearsonr(base, other).pvalue > SMALLEST_P, name
        assert stats.pearsonr(base**2, other**2).pvalue > SMALLEST_P, name


@both_rows
def test_normal_across_draws(rows):
    """One element is normal across draws and across images."""
    count = 1500
    across_draws = rows([noise_key(2, "a")] * count, list(range(count)), 2)[:, 0]
    across_images = rows([noise_key(2, str(image)) for image in range(count)], [0] * count, 2)[:, 1]
    for values in (across_draws, across_images):
        assert stats.kstest(values, "norm").pvalue > SMALLEST_P
        assert stats.pearsonr(values[:-1], values[1:]).pvalue > SMALLEST_P
