"""Philox4x32-10 and Box-Muller in plain torch operations: one code, eager or compiled, on any device.

Every element is computed from its own counter alone. A compiler can therefore fuse the noise into the addition, the
clamp and the normalisation, and the batch size cannot change it.

The rounds and constants are from Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
Words are held in int32, whose additions and truncations wrap as unsigned ones do.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Words4 = tuple[Tensor, Tensor, Tensor, Tensor]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9 - (1 << 32), 0xBB67AE85 - (1 << 32))  # as signed 32-bit numbers
_LOW = 0xFFFFFFFF


def philox4x32(counter: Words4, key: tuple[Tensor, Tensor]) -> Words4:
    """The four 32-bit words of Philox4x32-10 for each counter and key, bit for bit those of Random123.

    Args:
        counter: Four int32 tensors that broadcast together.
        key: Two int32 tensors that broadcast with them.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _KEY_STEPS[0], k1 + _KEY_STEPS[1]
    return c0, c1, c2, c3


def standard_normal(words: Tensor, draws: Tensor, shape: Sequence[int]) -> Tensor:
    """Independent N(0, 1) values, each a function of its row's key, its row's draw and its index in the row.

    Elements 2b and 2b + 1 are the two values that Box-Muller makes of block b. The radius takes 63 bits, so no value
    exceeds 9.5; the angle takes 32.

    Args:
        words: (B, 4) int32, the key of each row (`noise.key_words`).
        draws: (B,) int64, the draw of each row, below 2^32.
        shape: The shape of one row.

    Returns:
        (B, *shape) float32.
    """
    element = torch.arange(math.prod(shape), dtype=torch.int32, device=words.device).view(1, *shape)
    rows = (-1, *(1 for _ in shape))
    key = [word.view(rows) for word in words.unbind(1)]
    counter = (element >> 1, draws.to(torch.int32).view(rows), key[2], key[3])
    first, second, third, _ = philox4x32(counter, (key[0], key[1]))
    return _radius(first, second) * torch.cos(_angle(third) - (element & 1) * (math.pi / 2))


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of a product; wrapping in 64 bits keeps both right."""
    product = _unsigned(word) * constant
    return (product >> 32).to(torch.int32), product.to(torch.int32)


def _unsigned(word: Tensor) -> Tensor:
    return word.to(torch.int64) & _LOW


def _radius(high: Tensor, low: Tensor) -> Tensor:
    """sqrt(-2 ln u), u = (i + 1/2) / 2^63 in (0, 1]."""
    bits = (_unsigned(high) << 31) | (_unsigned(low) >> 1)
    uniform = (bits.to(torch.float32) + 0.5) * 2.0**-63
    # A fast logarithm may be slightly above 0 at u = 1, and its root would be NaN.
    return torch.sqrt(torch.clamp_min(-2.0 * torch.log(uniform), 0.0))


def _angle(word: Tensor) -> Tensor:
    """Uniform in [-pi, pi]."""
    return word.to(torch.float32) * (math.pi * 2.0**-31)
