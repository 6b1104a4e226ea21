"""What an attacker may do to an image: any perturbation of a norm, any content in m pixels, or in one square patch."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Mask = NDArray[np.bool_]

_INWARD = 1e-6  # what float32 may add to a norm when a perturbation is added to an image
_SPARSITY = 0.01  # the fraction of the numbers of an image that a step in the l1-ball changes


@dataclass(frozen=True)
class Ball:
    """All perturbations of a norm of at most R, by the sum of squares (order 2) or of absolute values (order 1)."""

    order: Literal[1, 2]

    def lengths(self, perturbations: Tensor) -> Tensor:
        """(P,) float64, the norm of each."""
        norms: Tensor = torch.linalg.vector_norm(perturbations.flatten(1).to(torch.float64), ord=self.order, dim=1)
        return norms

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """(P,) float64, the norm of what was added to each image; the difference is not rounded."""
        return self.lengths(images.to(torch.float64) - clean.to(torch.float64))

    def unit(self, perturbations: Tensor) -> Tensor:
        """Each perturbation at length 1; one of length 0, or that is not finite, becomes 0."""
        finite = torch.nan_to_num(perturbations, nan=0.0, posinf=0.0, neginf=0.0)
        return rescale(finite, 1 / self.lengths(finite).clamp(min=1e-30))

    def ascent(self, slope: Tensor, images: Tensor, *, box: bool) -> Tensor:
        """A direction of length 1 in which a function with this slope rises fast.

        In the l2-ball it is the slope itself. In the l1-ball a few numbers of the steepest slope share the step; in the
        `box` only those that a step against the slope leaves in [0, 1].
        """
        if self.order == 2:
            return self.unit(slope)
        steep = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
        if box:
            stuck = ((steep > 0) & (images <= 0)) | ((steep < 0) & (images >= 1))
            steep = steep.masked_fill(stuck, 0)
        heights = steep.flatten(1).abs()
        count = max(1, round(_SPARSITY * heights.shape[1]))
        least = heights.topk(count, dim=1).values[:, -1:].view(-1, *(1 for _ in slope.shape[1:]))
        return self.unit(torch.where((steep.abs() >= least) & (steep != 0), steep.sign(), 0))

    def project(self, clean: Tensor, images: Tensor, radius: Tensor, *, box: bool, sphere: bool = False) -> Tensor:
        """The images moved until their distance from the clean ones, computed from their float32 values, is in R.

        The `radius` is (P,) float64. In the `box` images also stay in [0, 1]; to the `sphere` shorter perturbations are
        stretched.
        """
        perturbations = images - clean
        if sphere:
            perturbations = rescale(self.unit(perturbations), radius)
        if box:
            perturbations = (clean + perturbations).clamp(0, 1) - clean
        inward = torch.full_like(radius, _INWARD)
        while True:
            projected = clean + self._shrink(perturbations, radius * (1 - inward).clamp(min=0))
            outside = self.distances(clean, projected) > radius
            if not bool(outside.any()):
                return projected
            inward = torch.where(outside, 2 * inward, inward)

    def _shrink(self, perturbations: Tensor, radius: Tensor) -> Tensor:
        """The nearest perturbations, in the l2-norm, whose own norm is in the radius."""
        if self.order == 2:
            return rescale(perturbations, (radius / self.lengths(perturbations).clamp(min=1e-30)).clamp(max=1.0))
        flat = perturbations.flatten(1).to(torch.float64)
        # Every absolute value is lowered by the same number, down to 0: by which, the sorted values say.
        falling = flat.abs().sort(dim=1, descending=True).values
        counts = torch.arange(1, flat.shape[1] + 1, device=flat.device)
        lowered = (falling.cumsum(dim=1) - radius[:, None]) / counts
        last = (falling > lowered).sum(dim=1, keepdim=True).clamp(min=1) - 1
        by = lowered.gather(1, last).clamp(min=0)
        return (flat.sign() * (flat.abs() - by).clamp(min=0)).to(perturbations.dtype).view_as(perturbations)


def rescale(perturbations: Tensor, factors: Tensor) -> Tensor:
    """Each perturbation times its own factor."""
    return perturbations * factors.to(perturbations.dtype).view(-1, *(1 for _ in perturbations.shape[1:]))


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


Attacker = Literal["l2-norm", "l1-norm", "pixels", "patch"]
Threat = Ball | Masks
THREATS: dict[str, Threat] = {"l2-norm": Ball(2), "l1-norm": Ball(1), "pixels": Pixels(), "patch": Patch()}
