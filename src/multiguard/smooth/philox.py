"""Noise by Philox4x32-10 in plain torch operations: one code, eager or compiled, on any device.

Every element is computed from its own counter alone. A compiler can therefore fuse the noise into the addition, the
clamp and the normalisation, and the batch size cannot change it.

The rounds and constants are from Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
Words are held in int32, whose additions and truncations wrap as unsigned ones do.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from multiguard.certify.noise import HIDDEN, Noise
from multiguard.smooth.noise_source import noise_scale

Words4 = tuple[Tensor, Tensor, Tensor, Tensor]

# From pixels (B, ...), the key words (B, 4), draws (B,) and whether each row has noise (B,) to noisy images.
Perturb = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9 - (1 << 32), 0xBB67AE85 - (1 << 32))  # as signed 32-bit numbers
_LOW = 0xFFFFFFFF
# sin(pi y) / y in powers of y^2: the polynomial that agrees at the Chebyshev nodes of 0 <= y^2 <= 1/4.
_SINE = (3.14159264, -5.167710077, 2.550077387, -0.5982904113, 0.07765591228)


def device_noise(noise: Noise) -> Perturb:
    """What adds this noise to images on their device; the arguments of the result are described at `Perturb`."""
    return noise.sample(_DeviceSampler())


class _DeviceSampler:
    """Each noise as operations on tensors."""

    def gaussian(self, sigma: float) -> Perturb:
        return _adder(standard_normal, noise_scale(sigma))

    def uniform(self, half_width: float) -> Perturb:
        return _adder(uniform, noise_scale(half_width))

    def pixels(self, keep: int, pixels: int) -> Perturb:
        def hidden(words: Tensor, draws: Tensor, size: Sequence[int]) -> Tensor:
            first, second, *_ = _words_at(words, draws, math.prod(size))
            keys = (_unsigned(first) << 31) | (_unsigned(second) >> 1)
            order = torch.sort(keys, dim=1, stable=True).indices[:, :keep]
            return torch.ones_like(keys, dtype=torch.bool).scatter(1, order, False).view(-1, 1, *size)

        return _hider(hidden)

    def band(self, width: int, columns: int) -> Perturb:
        def hidden(_: Tensor, draws: Tensor, __: Sequence[int]) -> Tensor:
            places = torch.arange(columns, device=draws.device) - draws.view(-1, 1)
            return (torch.remainder(places, columns) >= width).view(-1, 1, 1, columns)

        return _hider(hidden)


_OfRows = Callable[[Tensor, Tensor, Sequence[int]], Tensor]  # of the words, draws and shape of rows


def _adder(make: _OfRows, scale: float) -> Perturb:
    def add(pixels: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor) -> Tensor:
        drawn = scale * make(words, draws, pixels.shape[1:])
        return pixels + drawn * noisy_rows.reshape(-1, *[1] * (pixels.ndim - 1))

    return add


def _hider(hide: _OfRows) -> Perturb:
    def ablate(pixels: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor) -> Tensor:
        hidden = hide(words, draws, pixels.shape[2:]) & (noisy_rows.view(-1, 1, 1, 1) != 0)
        return torch.where(hidden, HIDDEN, pixels)

    return ablate


def philox4x32(counter: Words4, key: tuple[Tensor, Tensor]) -> Words4:
    """The four 32-bit words of Philox4x32-10 for each counter and key (int32), bit for bit as in Random123."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _KEY_STEPS[0], k1 + _KEY_STEPS[1]
    return c0, c1, c2, c3


def standard_normal(words: Tensor, draws: Tensor, shape: Sequence[int]) -> Tensor:
    """Independent N(0, 1) values (B, *shape): functions of their row's key and draw and of their index in the row.

    Elements 2b and 2b + 1 are the two values that Box-Muller makes of block b. The radius takes 63 bits, so no value
    exceeds 9.5; the angle takes 32.

    Args:
        words: (B, 4) int32, the key of each row (`noise_source.key_words`).
        draws: (B,) int64, the draw of each row, below 2^32.
        shape: The shape of one row.
    """
    element = torch.arange(math.prod(shape), dtype=torch.int32, device=words.device).view(1, *shape)
    rows = (-1, *(1 for _ in shape))
    key = [word.view(rows) for word in words.unbind(1)]
    counter = (element >> 1, draws.to(torch.int32).view(rows), key[2], key[3])
    first, second, third, _ = philox4x32(counter, (key[0], key[1]))
    turned = third - (element & 1) * (1 << 30)  # a full turn has 2^32 steps, and int32 wraps
    return _radius(first, second) * _cosine(turned.to(torch.float32) * 2.0**-31)


def uniform(words: Tensor, draws: Tensor, shape: Sequence[int]) -> Tensor:
    """Independent U(-1, 1) values (B, *shape), each from a word of its own; the arguments of `standard_normal`."""
    first, *_ = _words_at(words, draws, math.prod(shape))
    return first.to(torch.float32).view(-1, *shape) * 2.0**-31


def _words_at(words: Tensor, draws: Tensor, count: int) -> Words4:
    """The words (B, count) of counters 0, 1, 2, ... of each row's key and draw."""
    element = torch.arange(count, dtype=torch.int32, device=words.device).view(1, -1)
    key = [word.view(-1, 1) for word in words.unbind(1)]
    return philox4x32((element, draws.to(torch.int32).view(-1, 1), key[2], key[3]), (key[0], key[1]))


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of a product; wrapping in 64 bits keeps both right."""
    product = _unsigned(word) * constant
    return (product >> 32).to(torch.int32), product.to(torch.int32)


def _unsigned(word: Tensor) -> Tensor:
    return word.to(torch.int64) & _LOW


def _cosine(half_turns: Tensor) -> Tensor:
    """cos(pi t) for t in [-1, 1], within 2e-7: a polynomial costs a fraction of a cosine of any angle.

    cos(pi t) = sin(pi y) with y = 1/2 - |t|, and y times a polynomial in y^2 is sin(pi y) within 7e-9.
    """
    y = 0.5 - half_turns.abs()
    square, ratio = y * y, torch.full_like(y, _SINE[-1])
    for coefficient in _SINE[-2::-1]:
        ratio = ratio * square + coefficient
    return ratio * y


def _radius(high: Tensor, low: Tensor) -> Tensor:
    """sqrt(-2 ln u), u = (i + 1/2) / 2^63 in (0, 1]."""
    bits = (_unsigned(high) << 31) | (_unsigned(low) >> 1)
    uniform = (bits.to(torch.float32) + 0.5) * 2.0**-63
    # A fast logarithm may be slightly above 0 at u = 1, and its root would be NaN.
    return torch.sqrt(torch.clamp_min(-2.0 * torch.log(uniform), 0.0))
