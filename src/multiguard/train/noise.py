"""Randomness as a function of a key: what a step draws never depends on what was drawn before it."""

import hashlib

import torch
from torch import Tensor

ORDER, STEP, VALIDATION, MODEL = range(4)


def derived_seed(*key: int) -> int:
    """A 63-bit seed that depends on every part of the key, and on nothing else."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def add_noise(images: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """The images with fresh N(0, sigma^2) on every pixel, not clamped; the same tensor where sigma is 0."""
    if sigma == 0:
        return images
    noise = torch.randn(images.shape, generator=generator, device=images.device, dtype=images.dtype)
    return images.add(noise, alpha=sigma)


def ramped_sigma(sigma: float, epoch: int, ramp_epochs: int) -> float:
    """The noise of this epoch (from 0): a straight line up to epoch `ramp_epochs`, then sigma."""
    return sigma * min(1.0, (epoch + 1) / (ramp_epochs + 1))
