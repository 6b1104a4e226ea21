"""Perturbations of any content in a few pixels: any m pixels of the image, or one square patch of side m."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Pixels:
    """Masks of at most m pixel positions, anywhere."""

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """(P,) float64, how many pixels of each image differ, in any channel."""
        return _changed(clean, images).sum(dim=(1, 2)).to(torch.float64)

    def best(self, gains: Tensor, m: int) -> Tensor:
        """(height, width) boolean, the mask of the largest total gain; the gains are (height, width), none negative."""
        mask = torch.zeros_like(gains, dtype=torch.bool)
        mask.view(-1)[gains.flatten().topk(min(m, gains.numel())).indices] = True
        return mask

    def moved(self, mask: Mask | None, m: int, shape: tuple[int, int], rng: np.random.Generator, left: float) -> Mask:
        """A random mask of m pixels; it keeps all but a fraction `left` / 2 of an earlier one, at least one if any."""
        scores = rng.random(shape)
        if mask is not None:
            kept = rng.permutation(np.flatnonzero(mask))
            scores.flat[kept[math.ceil(0.5 * left * len(kept)) :]] += 1
        chosen = np.zeros(shape, dtype=np.bool_)
        chosen.flat[np.argsort(-scores, axis=None)[:m]] = True
        return chosen

    def region(self, shape: tuple[int, int], rng: np.random.Generator, left: float) -> Mask:
        """The pixels that get another content at once: some anywhere, fewer from try to try."""
        return np.asarray(rng.random(shape) < 0.1 + 0.4 * left)

    def colours(self, channels: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
        """(channels, height, width), a random colour per pixel, each channel 0 or 1."""
        return rng.integers(0, 2, (channels, *shape)).astype(np.float32)


@dataclass(frozen=True)
class Patch:
    """Masks of one square with sides of m pixels, anywhere inside the image."""

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """(P,) float64, the side of the smallest square that holds every pixel that differs."""
        changed = _changed(clean, images)
        return torch.stack([_extent(changed.any(dim=axis)) for axis in (1, 2)]).amax(dim=0).to(torch.float64)

    def best(self, gains: Tensor, m: int) -> Tensor:
        """The mask of the largest total gain, of all positions; the gains are (height, width), none negative."""
        height, width = gains.shape
        side = (min(m, height), min(m, width))
        sums = functional.avg_pool2d(gains[None, None].to(torch.float64), side, stride=1)[0, 0]
        top, start = divmod(int(sums.argmax()), sums.shape[1])
        mask = torch.zeros_like(gains, dtype=torch.bool)
        mask[top : top + m, start : start + m] = True
        return mask

    def moved(self, mask: Mask | None, m: int, shape: tuple[int, int], rng: np.random.Generator, left: float) -> Mask:
        """A random square; `left` says how far from an earlier mask, which it holds, if that fits, where that is 0."""
        corner = [int(rng.integers(0, max(1, size - m + 1))) for size in shape]
        if mask is not None:
            first = [int(np.flatnonzero(mask.any(axis=1 - axis))[0]) for axis in (0, 1)]
            reach = [math.ceil(left * size / 2) for size in shape]
            steps = [int(rng.integers(-far, far + 1)) for far in reach]
            places = zip(first, steps, shape, strict=True)
            corner = [min(max(0, place + step), max(0, size - m)) for place, step, size in places]
        chosen = np.zeros(shape, dtype=np.bool_)
        chosen[corner[0] : corner[0] + m, corner[1] : corner[1] + m] = True
        return chosen

    def region(self, shape: tuple[int, int], rng: np.random.Generator, left: float) -> Mask:
        """The pixels that get another content at once: a random square, smaller from try to try."""
        return random_square(shape, rng, left)

    def colours(self, channels: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
        """(channels, height, width), one random colour, each channel 0 or 1."""
        return np.broadcast_to(rng.integers(0, 2, (channels, 1, 1)), (channels, *shape)).astype(np.float32)


Masks = Pixels | Patch


def random_square(shape: tuple[int, int], rng: np.random.Generator, left: float) -> Mask:
    """The mask of a random square, smaller from try to try."""
    height, width = shape
    side = max(1, round(min(height, width) * (0.2 + 0.4 * left)))
    top, start = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
    mask = np.zeros(shape, dtype=np.bool_)
    mask[top : top + side, start : start + side] = True
    return mask


def _changed(clean: Tensor, images: Tensor) -> Tensor:
    """(P, height, width), whether a pixel differs in any channel."""
    return (clean != images).any(dim=1)


def _extent(changed: Tensor) -> Tensor:
    """(P,), from the first to the last of the changed places; 0 where none is. `changed` is (P, places)."""
    places = torch.arange(changed.shape[1], device=changed.device)
    last = torch.where(changed, places, -1).amax(dim=1)
    first = torch.where(changed, places, changed.shape[1]).amin(dim=1)
    return (last - first + 1).clamp(min=0)
