"""The device's generator against published vectors and a slow reference in Python integers."""

import math

import pytest
import torch

from multiguard.smooth.noise_source import key_words, noise_key
from multiguard.smooth.torch_engine import _radius, philox4x32, standard_normal

# Random123's kat_vectors for philox4x32, 10 rounds: counter, key, result.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def reference(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def word(value: int) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.int64).to(torch.int32)


def on_torch(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    c0, c1, c2, c3 = map(word, counter)
    found = philox4x32((c0, c1, c2, c3), (word(key[0]), word(key[1])))
    return tuple(int(part.item()) & 0xFFFFFFFF for part in found)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter, key, expected):
    """The published test vectors come out."""
    assert on_torch(counter, key) == expected
    assert reference(counter, key) == expected


def test_box_muller_blocks():
    """Every element is Box-Muller of its own block."""
    key = noise_key(3, "an image")
    draw, shape = 4_000_000_000, (3, 5, 7)
    words = torch.tensor([key_words(key)], dtype=torch.int32)
    found = standard_normal(words, torch.tensor([draw]), shape)[0].flatten().double().numpy()
    k0, k1, c2, c3 = (w & 0xFFFFFFFF for w in key_words(key))
    for element in range(math.prod(shape)):
        first, second, third, _ = reference((element >> 1, draw, c2, c3), (k0, k1))
        uniform = ((first << 31 | second >> 1) + 0.5) / 2**63
        angle = (third if third < 1 << 31 else third - (1 << 32)) * math.pi / 2**31
        turned = math.sin(angle) if element & 1 else math.cos(angle)
        assert found[element] == pytest.approx(math.sqrt(-2 * math.log(uniform)) * turned, abs=5e-6)


def test_extreme_uniforms():
    """The smallest and the largest uniform give finite values."""
    assert _radius(word(0), word(0)).item() == pytest.approx(math.sqrt(2 * 64 * math.log(2)))
    assert _radius(word(0xFFFFFFFF), word(0xFFFFFFFF)).item() == 0.0
