"""Noise is N(0, 1), independent across draws and images, and keyed by (seed, image id, draw) alone."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from multiguard.smooth.noise import HostNoise, key_words, noise_key
from multiguard.smooth.philox import standard_normal

SMALLEST_P = 1e-4  # of each seeded test; a generator that is wrong fails by many orders of magnitude
KEY_OF_SEED_0 = "c3b6c74b3df93d6653b282fe685deda7"


def host(key: bytes, draw: int, count: int) -> np.ndarray:
    out = np.empty(count, dtype=np.float32)
    HostNoise().standard_normal(key, draw, out)
    return out


def device(key: bytes, draw: int, count: int) -> np.ndarray:
    words = torch.tensor([key_words(key)], dtype=torch.int32)
    return standard_normal(words, torch.tensor([draw]), (count,))[0].numpy()


both = pytest.mark.parametrize("source", [host, device])


def test_host_noise_is_numpys_own_philox():
    key = noise_key(7, "x")
    bits = np.random.Philox(key=int.from_bytes(key, "little"), counter=5 << 128)
    expected = np.random.Generator(bits).standard_normal(1000, dtype=np.float32)
    assert np.array_equal(host(key, 5, 1000), expected)


def test_a_generator_that_was_used_before_gives_the_same_draw():
    noise, key = HostNoise(), noise_key(0, "x")
    first, again, other = (np.empty(333, dtype=np.float32) for _ in range(3))
    noise.standard_normal(key, 3, first)
    noise.standard_normal(key, 4, other)
    noise.standard_normal(key, 3, again)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_the_noise(threads):
    images = [np.full((2, 3), value, dtype=np.float32) for value in (0.0, 1.0) * 4]
    keys = [noise_key(0, f"{row % 2}") for row in range(8)]
    out = np.empty((8, 2, 3), dtype=np.float32)
    HostNoise(threads).perturb(images, keys, range(8), 0.25, out)
    for row in range(8):
        noise = host(keys[row], row, 6).reshape(2, 3)
        assert np.array_equal(out[row], noise * np.float32(0.25) + images[row])


def test_keys_differ_in_every_part():
    parts = itertools.product((0, 1, -1, 10), ("a", "b", "", "1", 'a"'), ("certify", "pilot"))
    keys = [noise_key(seed, image_id, stream) for seed, image_id, stream in parts]
    assert len(set(keys)) == len(keys)


def test_a_key_is_the_same_in_every_release():
    assert noise_key(0, "image").hex() == KEY_OF_SEED_0
    assert key_words(bytes(range(16))) == (0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C)


@both
def test_the_law_is_standard_normal(source):
    values = np.concatenate([source(noise_key(11, "law"), draw, 50_000) for draw in range(8)]).astype(np.float64)
    assert stats.kstest(values, "norm").pvalue > SMALLEST_P
    n = values.size
    for moment, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        z = (np.mean(values**moment) - mean) / np.sqrt(variance / n)
        assert 2 * stats.norm.sf(abs(z)) > SMALLEST_P


@both
def test_the_tails_are_as_heavy_as_they_should_be(source):
    values = np.concatenate([source(noise_key(12, "tails"), draw, 200_000) for draw in range(5)])
    for limit in (2.0, 3.0, 4.0):
        for beyond in (values > limit, values < -limit):
            exact = stats.norm.sf(limit)
            assert stats.binomtest(int(beyond.sum()), values.size, exact).pvalue > SMALLEST_P


@both
def test_draws_images_streams_and_neighbours_are_uncorrelated(source):
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


@both
def test_one_element_is_normal_across_draws_and_across_images(source):
    across_draws = np.array([source(noise_key(2, "a"), draw, 2)[0] for draw in range(1500)])
    across_images = np.array([source(noise_key(2, str(image)), 0, 2)[1] for image in range(1500)])
    for values in (across_draws, across_images):
        assert stats.kstest(values, "norm").pvalue > SMALLEST_P
        assert stats.pearsonr(values[:-1], values[1:]).pvalue > SMALLEST_P


@both
def test_pilot_and_certifying_draws_never_coincide(source):
    draws = range(200)
    certify = {source(noise_key(0, "a"), draw, 4).tobytes() for draw in draws}
    pilot = {source(noise_key(0, "a", "pilot"), draw, 4).tobytes() for draw in draws}
    assert len(certify) == len(pilot) == len(draws)
    assert not certify & pilot
